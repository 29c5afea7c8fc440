//! Kernels compiled for several instruction sets, one of which is chosen at run time.

use std::sync::OnceLock;

/// The instruction sets that the kernels of [`multiversion!`] are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What every processor of the target has.
    Portable,
    /// AVX2.
    Avx2,
    /// AVX-512 F.
    Avx512,
}

/// The best level of this processor, or a lower one that the environment variable `TOWERS_SIMD` names (`portable`,
/// `avx2`).
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let wanted = match std::env::var("TOWERS_SIMD").as_deref() {
            Ok("portable") => Level::Portable,
            Ok("avx2") => Level::Avx2,
            _ => Level::Avx512,
        };
        wanted.min(detected())
    })
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Level {
    if is_x86_feature_detected!("avx512f") {
        Level::Avx512
    } else if is_x86_feature_detected!("avx2") {
        Level::Avx2
    } else {
        Level::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Level {
    Level::Portable
}

/// Compiles a function once for each [`Level`] and calls the best that the processor has.
///
/// The body is plain Rust that the compiler vectorizes. No level contracts `a * b + c` into one rounding, so all of them
/// give the same bits.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $type),*) {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) {
                    body($($arg),*)
                }
                match $crate::dispatch::level() {
                    // SAFETY: the processor has AVX-512 F, as `level` found.
                    $crate::dispatch::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the processor has AVX2, as `level` found.
                    $crate::dispatch::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::dispatch::Level::Portable => {}
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use multiversion;
