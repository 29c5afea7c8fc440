//! Plain loops compiled for several instruction sets, one of which is chosen at run time. (Kernels that need more than
//! the compiler finds on its own are written over `simd::Simd`.)

/// Compiles a function once for each [`Level`](crate::simd::Level) and calls the best that the processor has.
///
/// The function may have type parameters. The body is plain Rust that the compiler vectorizes. No level contracts `a * b + c` into one rounding, so all of them
/// give the same bits.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($of:ident: $bound:ident),+>)? ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$($of: $bound),+>)? ($($arg: $type),*) {
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
                match $crate::simd::Level::detect() {
                    // SAFETY: the processor has AVX-512 F, as `detect` found.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the processor has AVX2, as `detect` found.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use multiversion;
