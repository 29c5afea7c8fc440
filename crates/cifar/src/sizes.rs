//! The sizes of images.

/// Height and width of CIFAR's and of synthetic images, in pixels; pictures of class folders are scaled to it unless told otherwise.
pub const SIDE: usize = 32;
/// Colour channels of every image: red, green, blue.
pub const CHANNELS: usize = 3;
/// Bytes of one image of CIFAR.
pub const IMAGE_BYTES: usize = SIDE * SIDE * CHANNELS;
