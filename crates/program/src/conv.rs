use crate::{Error, Misfit, Pad, Result, Shape};

/// The most pixels of a padded image, and pixels from one window to the next: so many that no image is refused, and so
/// few that no place in one overflows.
const MOST: usize = u32::MAX as usize;

/// Rows and columns of the output, for a window of `kernel` that moves over `h x w` by `stride`. `None` if it
/// does not fit once or a size is absurd.
pub(crate) fn windows(
    h: usize,
    w: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    pad: Pad,
) -> Option<[usize; 2]> {
    let rows = h.checked_add(pad.top)?.checked_add(pad.bottom)?;
    let columns = w.checked_add(pad.left)?.checked_add(pad.right)?;
    if kernel.contains(&0) || rows.checked_mul(columns)? > MOST || stride[0].max(stride[1]) > MOST {
        return None;
    }
    let along =
        |size: usize, kernel: usize, stride: usize| Some(size.checked_sub(kernel)?.checked_div(stride)? + 1);
    Some([along(rows, kernel[0], stride[0])?, along(columns, kernel[1], stride[1])?])
}

/// A two-dimensional convolution (cross-correlation, as in every deep-learning library).
///
/// `y[n, i, j, k] = b[k] + sum over u, v, c of x[n, i*sy + u*dy - top, j*sx + v*dx - left, c] * w[u, v, c, k]`
///
/// With groups each output channel reads the input channels of its own group alone: `c` counts within the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Input channels.
    pub inputs: usize,
    /// Output channels (filters), `k`.
    pub outputs: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Parts of equal size into which both input and output channels are divided.
    pub groups: usize,
    /// Zeros around the input.
    pub pad: Pad,
}

impl Conv2d {
    /// A convolution without stride, dilation, groups and padding. Other ones change fields of it.
    pub const fn new(inputs: usize, outputs: usize, kernel: [usize; 2]) -> Conv2d {
        Conv2d { inputs, outputs, kernel, stride: [1; 2], dilation: [1; 2], groups: 1, pad: Pad::VALID }
    }

    /// Elements of the weights: `kh * kw * c * k`, saturating as a shape's counts do.
    pub const fn weights(&self) -> usize {
        let [kh, kw] = self.kernel;
        kh.saturating_mul(kw).saturating_mul(self.group_inputs()).saturating_mul(self.outputs)
    }

    /// Input channels of a group, `c`.
    pub const fn group_inputs(&self) -> usize {
        match self.inputs.checked_div(self.groups) {
            Some(inputs) => inputs,
            None => 0,
        }
    }

    /// Rows and columns from the first to the last element of the kernel: with dilation more than it has.
    pub const fn extent(&self) -> [usize; 2] {
        let ([kh, kw], [dy, dx]) = (self.kernel, self.dilation);
        [dilated(kh, dy), dilated(kw, dx)]
    }

    /// Multiply-adds for `n` samples of `h x w` inputs, forward; each of the two backward passes has as many.
    pub fn multiply_adds(&self, x: Shape) -> usize {
        self.output(x).map_or(0, |y| y.rows().saturating_mul(self.weights()))
    }

    /// The output's shape for an input of shape `x`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the channels differ, [`Error::Window`] if the kernel does not fit into the padded input,
    /// [`Error::Value`] if the groups do not divide the channels or the dilation is 0.
    pub fn output(&self, x: Shape) -> Result<Shape> {
        let op = "conv2d";
        Error::check_shape(op, "the input", x, x.with_c(self.inputs))?;
        let value = |what, value: usize, accepted| Error::Value { op, what, value: value as f64, accepted };
        if self.groups == 0
            || !self.inputs.is_multiple_of(self.groups)
            || !self.outputs.is_multiple_of(self.groups)
        {
            let accepted = "a divisor of its input channels and of its filters";
            return Err(value("the number of groups", self.groups, accepted));
        }
        if self.dilation.contains(&0) {
            return Err(value("the dilation", 0, "at least 1"));
        }
        let kernel = self.extent();
        let [h, w] = windows(x.h, x.w, kernel, self.stride, self.pad).ok_or(Misfit {
            op,
            what: if kernel == self.kernel { "the kernel" } else { "the dilated kernel" },
            kernel,
            stride: self.stride,
            input: [x.h, x.w],
            pad: self.pad,
            accepted: "from 1x1 to the padded input, of less than 2^32 pixels, and moved by at least 1x1",
        })?;
        Ok(Shape::new(x.n, h, w, self.outputs))
    }
}

/// From the first to the last of `size` elements that are `dilation` apart.
pub(crate) const fn dilated(size: usize, dilation: usize) -> usize {
    if size == 0 { 0 } else { (size - 1).saturating_mul(dilation).saturating_add(1) }
}

/// A dense layer: `y[n, k] = b[k] + sum over c of x[n, c] * w[c, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Input features, `c`.
    pub inputs: usize,
    /// Output features (units), `k`.
    pub outputs: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conv(kernel: usize, stride: usize, pad: Pad) -> Conv2d {
        Conv2d { stride: [stride; 2], pad, ..Conv2d::new(3, 8, [kernel; 2]) }
    }

    #[test]
    fn output_sizes() {
        let x = Shape::new(2, 32, 32, 3);
        assert_eq!(conv(3, 2, Pad::VALID).output(x).unwrap(), Shape::new(2, 15, 15, 8));
        let same = Pad::same(32, 32, [3; 2], [1; 2]);
        assert_eq!(same, Pad { top: 1, bottom: 1, left: 1, right: 1 });
        assert_eq!(conv(3, 1, same).output(x).unwrap(), Shape::new(2, 32, 32, 8));
        assert!(matches!(conv(33, 1, Pad::VALID).output(x), Err(Error::Window { .. })));
        assert!(matches!(conv(0, 1, Pad::VALID).output(x), Err(Error::Window { .. })));
        assert!(matches!(conv(3, 0, Pad::VALID).output(x), Err(Error::Window { .. })));
        assert!(matches!(conv(3, 1, same).output(x.with_c(4)), Err(Error::Shape { .. })));
    }

    #[test]
    fn groups_and_dilation() {
        let (x, conv) = (Shape::new(2, 9, 7, 6), Conv2d::new(6, 4, [3; 2]));
        let dilated = Conv2d { dilation: [4, 2], ..conv };
        assert_eq!(dilated.output(x).unwrap(), Shape::new(2, 1, 3, 4));
        assert_eq!(Conv2d { stride: [1, 2], ..dilated }.output(x).unwrap(), Shape::new(2, 1, 2, 4));
        let wide = Conv2d { dilation: [1, 4], ..conv }.output(x).unwrap_err().to_string();
        assert!(wide.contains("the dilated kernel is 3x9"), "{wide}");
        let grouped = Conv2d { groups: 2, ..conv };
        assert_eq!((grouped.weights(), grouped.output(x).unwrap().c), (9 * 3 * 4, 4));
        for (groups, dilation) in [(0, 1), (4, 1), (3, 1), (2, 0)] {
            let bad = Conv2d { groups, dilation: [1, dilation], ..conv };
            assert!(matches!(bad.output(x), Err(Error::Value { .. })), "{bad:?}");
        }
    }
}
