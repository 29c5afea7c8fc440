//! The sizes of images.

pub use towers_dataset::CHANNELS;

/// Height and width of CIFAR's and of synthetic images, in pixels.
pub const SIDE: usize = 32;
/// Bytes of one image of CIFAR.
pub const IMAGE_BYTES: usize = SIDE * SIDE * CHANNELS;
