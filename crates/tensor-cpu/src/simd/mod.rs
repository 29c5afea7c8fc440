//! Vectors of f32 behind one small trait, so that a kernel is written once and compiled for every instruction set.
//!
//! A kernel is an `#[inline(always)]` function over `S: Simd`; it becomes machine code inside thin functions that carry
//! the `#[target_feature]`s of one [`Level`] (see `conv::kernels`), which is where all of this is inlined to.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;

use std::sync::OnceLock;

/// An instruction set that kernels are compiled for, from the slowest to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What the compiler makes of plain loops on the target's baseline.
    Portable,
    /// NEON: 4 lanes, 32 registers.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// AVX2 with FMA: 8 lanes, 16 registers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512F: 16 lanes, 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The names of the instruction sets of all processors that there are kernels for.
pub const SIMD_LEVELS: [&str; 4] = ["portable", "neon", "avx2", "avx512"];

/// What the environment variable `TOWERS_SIMD` says, where that is none of [`SIMD_LEVELS`]. Kernels then are those for the processor.
pub fn unknown_simd_level() -> Option<String> {
    Some(Level::wanted()).filter(|name| !name.is_empty() && !SIMD_LEVELS.contains(&name.as_str()))
}

impl Level {
    /// All levels that this processor has, the slowest first.
    pub(crate) fn available() -> &'static [Level] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            const ALL: &[Level] = &[Level::Portable, Level::Avx2, Level::Avx512];
            return &ALL[..if is_x86_feature_detected!("avx512f") { 3 } else { 2 }];
        }
        &[
            Level::Portable,
            #[cfg(target_arch = "aarch64")]
            Level::Neon,
        ]
    }

    /// The fastest level that this processor has, or the one of these that the environment variable `TOWERS_SIMD` names.
    /// Read once.
    pub(crate) fn detect() -> Level {
        static CHOICE: OnceLock<Level> = OnceLock::new();
        *CHOICE.get_or_init(|| {
            let wanted = Level::wanted();
            let levels = Level::available();
            let named = levels.iter().find(|level| level.name() == wanted);
            *named.or(levels.last()).unwrap_or(&Level::Portable)
        })
    }

    /// What `TOWERS_SIMD` names; empty where it is not set.
    pub(crate) fn wanted() -> String {
        std::env::var_os("TOWERS_SIMD").unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its name: `portable`, `neon`, `avx2` or `avx512`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

/// A vector of f32.
///
/// # Safety
/// Every function may only run where the processor has the implementor's instruction set. Pointers must be valid for
/// the lanes that are read or written; they need no alignment.
pub(crate) trait Simd: Copy {
    /// How many numbers a vector holds.
    const LANES: usize;
    /// The vector.
    type Vec: Copy;
    /// The first so many lanes.
    type Mask: Copy;

    unsafe fn mask(lanes: usize) -> Self::Mask;
    unsafe fn zero() -> Self::Vec;
    /// One number in all lanes.
    unsafe fn splat(from: *const f32) -> Self::Vec;
    unsafe fn load(from: *const f32) -> Self::Vec;
    /// The masked lanes; the others are 0 and their memory is not touched.
    unsafe fn load_masked(from: *const f32, mask: Self::Mask) -> Self::Vec;
    unsafe fn store(to: *mut f32, v: Self::Vec);
    /// Stores the masked lanes; the others' memory is not touched.
    unsafe fn store_masked(to: *mut f32, mask: Self::Mask, v: Self::Vec);
    /// A value in all lanes.
    unsafe fn set(value: f32) -> Self::Vec;
    unsafe fn add(a: Self::Vec, b: Self::Vec) -> Self::Vec;
    unsafe fn sub(a: Self::Vec, b: Self::Vec) -> Self::Vec;
    unsafe fn mul(a: Self::Vec, b: Self::Vec) -> Self::Vec;
    /// `a * b + c`.
    unsafe fn fma(a: Self::Vec, b: Self::Vec, c: Self::Vec) -> Self::Vec;
    /// `max(v, 0)`, NaN where `v` is.
    unsafe fn relu(v: Self::Vec) -> Self::Vec;
    /// The smaller one, NaN where `v` is.
    unsafe fn min(v: Self::Vec, most: Self::Vec) -> Self::Vec;
    /// Asks for the memory at any address, valid or not, to be brought near.
    unsafe fn prefetch(at: *const f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_from_the_portable_one_up() {
        let levels = Level::available();
        assert_eq!(levels[0], Level::Portable);
        assert!(levels.is_sorted());
        assert!(levels.contains(&Level::detect()));
    }
}
