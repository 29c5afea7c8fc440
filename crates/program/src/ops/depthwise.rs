use crate::conv::windows;
use crate::{Error, Misfit, Pad, Result, Shape};

/// A depthwise convolution: each input channel has filters of its own.
///
/// `y[n, i, j, c * m + k] = b[c * m + k] + sum over u, v of
/// x[n, i*sy + u*dy - top, j*sx + v*dx - left, c] * w[u, v, c, k]`, for `m` filters a channel. Keras calls `m` the depth
/// multiplier and stores the weights in this order; for PyTorch this is a `Conv2d` with a group for each input channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depthwise {
    /// Input channels, `c`.
    pub inputs: usize,
    /// Filters of each channel, `m`.
    pub multiplier: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Zeros around the input.
    pub pad: Pad,
}

impl Depthwise {
    /// Output channels: `c * m`, saturating as a shape's counts do.
    pub const fn outputs(&self) -> usize {
        self.inputs.saturating_mul(self.multiplier)
    }

    /// Elements of the kernel.
    pub const fn taps(&self) -> usize {
        self.kernel[0].saturating_mul(self.kernel[1])
    }

    /// Elements of the weights: `kh * kw * c * m`.
    pub const fn weights(&self) -> usize {
        self.taps().saturating_mul(self.outputs())
    }

    /// Rows and columns under the kernel; 0 where there are none.
    pub fn extent(&self) -> [usize; 2] {
        [0, 1].map(|axis| match (self.kernel[axis], self.dilation[axis]) {
            (0, _) | (_, 0) => 0,
            (kernel, dilation) => (kernel - 1).saturating_mul(dilation).saturating_add(1),
        })
    }

    /// The output's shape for an input of shape `x`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the channels differ, [`Error::Window`] if the kernel does not fit into the padded input.
    pub fn output(&self, x: Shape) -> Result<Shape> {
        let (op, kernel) = ("depthwise_conv2d", self.extent());
        Error::check_shape(op, "the input", x, x.with_c(self.inputs))?;
        let [h, w] = windows(x.h, x.w, kernel, self.stride, self.pad).ok_or(Misfit {
            op,
            what: "the kernel with its dilation",
            kernel,
            stride: self.stride,
            input: [x.h, x.w],
            pad: self.pad,
            accepted: "from 1x1 to the padded input, of less than 2^32 pixels, and moved by at least 1x1",
        })?;
        Ok(Shape::new(x.n, h, w, self.outputs()))
    }

    /// Multiply-adds for an input of this shape, forward; each of the two backward passes has as many.
    pub fn multiply_adds(&self, x: Shape) -> usize {
        self.output(x).map_or(0, |y| y.rows().saturating_mul(self.weights()))
    }
}
