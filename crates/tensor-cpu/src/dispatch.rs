//! Plain loops compiled for several instruction sets, one of which is chosen at run time. (Kernels that need more than
//! the compiler finds on its own are written over `simd::Simd`.)

/// Compiles a function once for each [`Level`](crate::simd::Level). It gets the level to run as its first argument, which
/// is that of a [`Cpu`](crate::Cpu).
///
/// The function may have type parameters. The body is plain Rust that the compiler vectorizes. No level contracts `a * b + c` into one rounding, so all of them
/// give the same bits.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($of:ident: $bound:ident),+>)? ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$($of: $bound),+>)? (level: $crate::simd::Level, $($arg: $type),*) {
            #[inline(always)]
            fn body $(<$($of: $bound),+>)? ($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512 $(<$($of: $bound),+>)? ($($arg: $type),*) {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($of: $bound),+>)? ($($arg: $type),*) {
                    body($($arg),*)
                }
                match level {
                    // SAFETY: a device has only levels of this processor, which has AVX-512 F.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the same holds for AVX2.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = level;
            body($($arg),*)
        }
    };
}

pub(crate) use multiversion;
