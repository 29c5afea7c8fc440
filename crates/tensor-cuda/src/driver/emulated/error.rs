//! Errors of the emulation.

use towers_program::Error;

/// The device's name.
pub(super) const NAME: &str = "the emulated GPU";

/// An error of the emulation.
pub(super) fn error(message: impl Into<String>) -> Error {
    Error::Device { device: NAME.into(), message: message.into() }
}
