use crate::conv::windows;
use crate::{Misfit, Pad, Result, Shape};

/// A pooling window. Padding never wins a maximum and never counts in an average, as in Keras.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Pixels around the input.
    pub pad: Pad,
}

impl Pool2d {
    /// The output's shape for an input of shape `x`.
    ///
    /// # Errors
    /// [`Error::Window`](crate::Error::Window) if the window does not fit into the padded input, or could lie in the padding alone.
    pub fn output(&self, x: Shape) -> Result<Shape> {
        let fits = x.h > 0
            && x.w > 0
            && self.pad.top.max(self.pad.bottom) < self.kernel[0]
            && self.pad.left.max(self.pad.right) < self.kernel[1];
        let size = windows(x.h, x.w, self.kernel, self.stride, self.pad).filter(|_| fits);
        let [h, w] = size.ok_or(Misfit {
            op: "pool2d",
            what: "the window",
            kernel: self.kernel,
            stride: self.stride,
            input: [x.h, x.w],
            pad: self.pad,
            accepted: "larger than the padding, at most the padded input, and moved by at least 1x1",
        })?;
        Ok(Shape::new(x.n, h, w, x.c))
    }
}
