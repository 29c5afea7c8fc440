use crate::conv::windows;
use crate::{Misfit, Pad, Result, Shape};

/// A pooling window. Padding never wins a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Pixels around the input.
    pub pad: Pad,
    /// The padding that counts in an average, as zeros: none in Keras.
    pub counted: Pad,
}

impl Pool2d {
    /// Windows whose padding does not count in an average.
    pub const fn new(kernel: [usize; 2], stride: [usize; 2], pad: Pad) -> Self {
        Pool2d { kernel, stride, pad, counted: Pad::VALID }
    }

    /// One more window in each direction, where that begins inside of an input of shape `x` or in the padding before it: PyTorch's
    /// `ceil_mode`. What it takes is padding that never counts.
    #[must_use]
    pub fn ceil(self, x: Shape) -> Self {
        let more = |size: usize, kernel: usize, stride: usize, before: usize, after: usize| {
            let all = size.saturating_add(before).saturating_add(after);
            let left = all.checked_sub(kernel)?.checked_rem(stride)?;
            // Where the first of the windows that do not fit begins.
            let start = (all - kernel - left).saturating_add(stride);
            (left > 0 && start < size + before).then(|| start + kernel - all)
        };
        let ([kh, kw], [sh, sw], pad) = (self.kernel, self.stride, self.pad);
        let bottom = pad.bottom + more(x.h, kh, sh, pad.top, pad.bottom).unwrap_or(0);
        let right = pad.right + more(x.w, kw, sw, pad.left, pad.right).unwrap_or(0);
        Pool2d { pad: Pad { bottom, right, ..pad }, ..self }
    }

    /// The number of pixels whose mean window `(i, j)` on an input of shape `x` is.
    #[inline(always)]
    pub fn divisor(&self, x: Shape, i: usize, j: usize) -> usize {
        let Pool2d { kernel, stride, pad, counted } = self;
        // In rows or columns of the padded input.
        let along = |k: usize, axis: usize, first: usize, end: usize| {
            let start = k * stride[axis];
            (start + kernel[axis]).min(end).saturating_sub(start.max(first))
        };
        let rows = along(i, 0, pad.top - counted.top, pad.top + x.h + counted.bottom);
        rows * along(j, 1, pad.left - counted.left, pad.left + x.w + counted.right)
    }

    /// The output's shape for an input of shape `x`.
    ///
    /// # Errors
    /// [`Error::Window`](crate::Error::Window) if the window does not fit into the padded input, or could lie in the padding alone, or
    /// more padding counts than there is.
    pub fn output(&self, x: Shape) -> Result<Shape> {
        let (pad, counted) = (self.pad, self.counted);
        let fits = x.h > 0
            && x.w > 0
            && pad.top.max(pad.bottom) < self.kernel[0]
            && pad.left.max(pad.right) < self.kernel[1]
            && counted.top <= pad.top
            && counted.bottom <= pad.bottom
            && counted.left <= pad.left
            && counted.right <= pad.right;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of PyTorch 2's `F.max_pool2d(torch.zeros(1, size, size), kernel, stride, pad, ceil_mode=True)`.
    #[test]
    fn ceil_adds_windows_that_begin_inside() {
        for (size, [kernel, stride, pad], expected) in [
            (112, [3, 2, 0], 56),
            (111, [3, 2, 0], 55),
            (7, [2, 2, 0], 4),
            (7, [2, 2, 1], 4),
            (6, [2, 2, 1], 4),
            (5, [1, 3, 0], 2),
            (4, [1, 3, 0], 2),
            (3, [1, 3, 0], 1),
            (4, [3, 4, 1], 2),
        ] {
            let pool =
                Pool2d::new([kernel; 2], [stride; 2], Pad { top: pad, bottom: pad, left: pad, right: pad });
            let x = Shape::new(1, size, size, 1);
            let y = pool.ceil(x).output(x).unwrap();
            assert_eq!((y.h, y.w), (expected, expected), "{pool:?} on {size}");
        }
    }
}
