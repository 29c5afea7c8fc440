//! Places of tensors in device memory.

use crate::driver::Ptr;
use towers_program::Shape;

/// A tensor of activations at its place in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The first element.
    pub(crate) ptr: Ptr,
    pub(crate) shape: Shape,
    /// Elements from a pixel to the next.
    pub(crate) stride: usize,
}

impl Place {
    /// Pixels of all samples.
    pub(crate) fn rows(&self) -> usize {
        self.shape.rows()
    }

    /// Whether pixels lie back to back.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.stride == self.shape.c
    }
}
