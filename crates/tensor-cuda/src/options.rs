//! What a device is opened with.

use program::Precision;

/// The options of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The GPU's number.
    pub gpu: usize,
    /// The number formats of its arithmetic.
    pub precision: Precision,
}
