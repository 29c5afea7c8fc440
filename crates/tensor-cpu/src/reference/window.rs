use towers_program::ops::Depthwise;
use towers_program::{Conv2d, Pad, Pool2d, Shape};

/// A window that moves over an image: what convolution and pooling share.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    pad: Pad,
}

impl From<&Conv2d> for Window {
    fn from(conv: &Conv2d) -> Self {
        Window { kernel: conv.kernel, stride: conv.stride, dilation: conv.dilation, pad: conv.pad }
    }
}

impl From<&Pool2d> for Window {
    fn from(pool: &Pool2d) -> Self {
        Window { kernel: pool.kernel, stride: pool.stride, dilation: [1; 2], pad: pool.pad }
    }
}

impl From<&Depthwise> for Window {
    fn from(conv: &Depthwise) -> Self {
        Window { kernel: conv.kernel, stride: conv.stride, dilation: conv.dilation, pad: conv.pad }
    }
}

impl Window {
    /// The pixels of an `x`-shaped image under the window of output pixel `(i, j)`, in row-major order and without those in
    /// the padding: `(tap, y, x)`, where `tap` counts the window's places.
    pub(crate) fn pixels(self, x: Shape, i: usize, j: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let [height, width] = self.kernel;
        (0..height * width).filter_map(move |tap| {
            let (u, v) = (tap / width, tap % width);
            let row = (i * self.stride[0] + u * self.dilation[0]).checked_sub(self.pad.top)?;
            let column = (j * self.stride[1] + v * self.dilation[1]).checked_sub(self.pad.left)?;
            (row < x.h && column < x.w).then_some((tap, row, column))
        })
    }
}

/// All pixels of a shape: `(sample, row, column)`.
pub(crate) fn pixels(shape: Shape) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..shape.n).flat_map(move |n| (0..shape.h).flat_map(move |i| (0..shape.w).map(move |j| (n, i, j))))
}
