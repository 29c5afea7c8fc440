use crate::{Layer, Lower};
use towers_program::{Pad, Result, TensorId, ops};

/// Zeros around images. Before a convolution [`Padding::Sides`](crate::Padding) does the same without an op of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPadding2D {
    padding: Pad,
}

impl ZeroPadding2D {
    /// `padding` rows and columns on every side.
    pub fn new(padding: usize) -> Self {
        ZeroPadding2D::of(Pad { top: padding, bottom: padding, left: padding, right: padding })
    }

    /// Another number on each side.
    pub fn of(padding: Pad) -> Self {
        ZeroPadding2D { padding }
    }
}

impl Layer for ZeroPadding2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::ZeroPad::from(self.padding), inputs)
    }
}

/// Images without some rows and columns at their borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cropping2D {
    cropping: Pad,
}

impl Cropping2D {
    /// Without `cropping` rows and columns on every side.
    pub fn new(cropping: usize) -> Self {
        Cropping2D::of(Pad { top: cropping, bottom: cropping, left: cropping, right: cropping })
    }

    /// Another number on each side.
    pub fn of(cropping: Pad) -> Self {
        Cropping2D { cropping }
    }
}

impl Layer for Cropping2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(-ops::ZeroPad::from(self.cropping), inputs)
    }
}

/// Images a whole number of times as large.
///
/// Each pixel is repeated; with `bilinear` the nearest pixels are blended, as in Keras, and as in PyTorch without `align_corners`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpSampling2D {
    size: [usize; 2],
    bilinear: bool,
}

impl UpSampling2D {
    /// `size` times as many rows and columns.
    pub fn new(size: usize) -> Self {
        UpSampling2D::of([size; 2])
    }

    /// Other factors for rows than for columns.
    pub fn of(size: [usize; 2]) -> Self {
        UpSampling2D { size, bilinear: false }
    }

    /// Whether pixels are blended.
    pub fn bilinear(self, bilinear: bool) -> Self {
        UpSampling2D { bilinear, ..self }
    }
}

impl Layer for UpSampling2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::Upsample { by: self.size, bilinear: self.bilinear }, inputs)
    }
}
