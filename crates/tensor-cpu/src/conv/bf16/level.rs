#[cfg(target_arch = "x86_64")]
use super::amx;
use super::portable;
use super::tiles::Tiles;

/// How a processor multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain loops, for tests: the same bits as [`Level::Amx`], at a snail's pace.
    Portable,
    /// Intel's AMX, in servers since 2023.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Level {
    /// The fastest one that goes with vectors of `simd`; `None` where products of 32 bits are as fast. Plain
    /// loops are slower by far, so the environment must have asked for them.
    pub(crate) fn detect(simd: crate::simd::Level) -> Option<Level> {
        match simd {
            crate::simd::Level::Portable => {
                (crate::simd::Level::wanted() == simd.name()).then_some(Level::Portable)
            }
            #[cfg(target_arch = "x86_64")]
            crate::simd::Level::Avx512 if amx::available() => Some(Level::Amx),
            _ => None,
        }
    }

    /// Its name: `portable` or `amx`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
        }
    }

    pub(super) fn tiles(self) -> &'static Tiles {
        match self {
            Level::Portable => &portable::TILES,
            #[cfg(target_arch = "x86_64")]
            Level::Amx => &amx::TILES,
        }
    }
}

/// The tiles of a device with this level. One without any gets them for tensors of another device's.
pub(super) fn tiles(level: Option<Level>) -> &'static Tiles {
    level.unwrap_or(Level::Portable).tiles()
}
