//! Versions of NVIDIA's libraries.

use core::fmt;

/// A library's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The version of these three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    pub(crate) const fn major(self) -> u32 {
        self.major
    }

    pub(crate) const fn minor(self) -> u32 {
        self.minor
    }
}

impl fmt::Display for Version {
    /// As NVIDIA writes it: CUDA's own versions have two numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 || self.major < 10 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}
