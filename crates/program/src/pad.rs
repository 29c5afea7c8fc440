/// Zeros around an image, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pad {
    /// Rows above.
    pub top: usize,
    /// Rows below.
    pub bottom: usize,
    /// Columns to the left.
    pub left: usize,
    /// Columns to the right.
    pub right: usize,
}

impl Pad {
    /// No padding: Keras' `padding="valid"`.
    pub const VALID: Pad = Pad { top: 0, bottom: 0, left: 0, right: 0 };

    /// Keras' (TensorFlow's) `padding="same"`: as many outputs as `ceil(size / stride)`; an odd pixel of padding goes
    /// below and to the right.
    pub fn same(h: usize, w: usize, kernel: [usize; 2], stride: [usize; 2]) -> Pad {
        let total = |size: usize, kernel: usize, stride: usize| {
            ((size.div_ceil(stride).max(1) - 1) * stride).saturating_add(kernel).saturating_sub(size)
        };
        let (v, u) = (total(h, kernel[0], stride[0]), total(w, kernel[1], stride[1]));
        Pad { top: v / 2, bottom: v - v / 2, left: u / 2, right: u - u / 2 }
    }

    /// What of it is left without `part`, side by side.
    #[must_use]
    pub const fn without(self, part: Pad) -> Pad {
        Pad {
            top: self.top.saturating_sub(part.top),
            bottom: self.bottom.saturating_sub(part.bottom),
            left: self.left.saturating_sub(part.left),
            right: self.right.saturating_sub(part.right),
        }
    }

    /// Rows and columns of an image of `[rows, columns]` with this around it.
    pub(crate) const fn around(&self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let rows = rows.saturating_add(self.top).saturating_add(self.bottom);
        [rows, columns.saturating_add(self.left).saturating_add(self.right)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TensorFlow puts the odd pixel of "same" padding below and to the right.
    #[test]
    fn same_padding_with_stride() {
        assert_eq!(Pad::same(32, 31, [3; 2], [2; 2]), Pad { top: 0, bottom: 1, left: 1, right: 1 });
        assert_eq!(Pad::same(5, 5, [1; 2], [2; 2]), Pad::VALID);
    }
}
