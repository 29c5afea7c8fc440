use core::fmt;
use core::ops::Range;

/// The shape of a tensor: `n` samples of `h` rows, `w` columns and `c` channels (NHWC).
///
/// A batch of vectors has `h = w = 1`. Counts saturate, so that an absurd shape fits into no buffer instead of wrapping
/// around into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Samples.
    pub n: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
    /// Channels.
    pub c: usize,
}

impl Shape {
    /// The shape `(n, h, w, c)`.
    pub const fn new(n: usize, h: usize, w: usize, c: usize) -> Self {
        Shape { n, h, w, c }
    }

    /// `n` vectors of `c` elements.
    pub const fn vectors(n: usize, c: usize) -> Self {
        Shape { n, h: 1, w: 1, c }
    }

    /// Pixels: `n * h * w`.
    pub const fn rows(self) -> usize {
        self.n.saturating_mul(self.h).saturating_mul(self.w)
    }

    /// Elements: `n * h * w * c`.
    pub const fn len(self) -> usize {
        self.rows().saturating_mul(self.c)
    }

    /// Whether there are no elements.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Elements of one sample: `h * w * c`.
    pub const fn per_sample(self) -> usize {
        self.h.saturating_mul(self.w).saturating_mul(self.c)
    }

    /// The same with `n` samples.
    pub const fn with_n(self, n: usize) -> Self {
        Shape { n, ..self }
    }

    /// The same with `c` channels.
    pub const fn with_c(self, c: usize) -> Self {
        Shape { c, ..self }
    }

    /// One vector a sample, in the order of memory.
    pub const fn flatten(self) -> Self {
        Shape::vectors(self.n, self.per_sample())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {}, {})", self.n, self.h, self.w, self.c)
    }
}

/// The layout of a tensor in a buffer: the element `(i, y, x, ch)` is at `offset + ((i * h + y) * w + x) *
/// stride + ch`.
///
/// ```
/// use towers_program::{Layout, Shape};
///
/// // The last 48 of 80 channels: an inception module's second branch, inside the concatenated output.
/// let both = Layout::contiguous(Shape::new(64, 32, 32, 80));
/// let right = both.channels(32..80);
/// assert_eq!((right.offset, right.stride, right.shape.c), (32, 80, 48));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The first element's place in the buffer.
    pub offset: usize,
    /// The shape.
    pub shape: Shape,
    /// Elements from one pixel to the next; at least `shape.c`.
    pub stride: usize,
}

impl Layout {
    /// A whole buffer of this shape, pixels back to back.
    pub const fn contiguous(shape: Shape) -> Self {
        Layout { offset: 0, shape, stride: shape.c }
    }

    /// Whether pixels lie back to back.
    pub const fn is_contiguous(self) -> bool {
        self.stride == self.shape.c
    }

    /// One past the last element; `offset` for an empty shape.
    pub const fn end(self) -> usize {
        if self.shape.is_empty() {
            self.offset
        } else {
            // Saturating, as the shape's counts do: an absurd layout is out of bounds.
            let before = (self.shape.rows() - 1).saturating_mul(self.stride);
            self.offset.saturating_add(before).saturating_add(self.shape.c)
        }
    }

    /// The channels in `range` of every pixel. The range must lie within the channels.
    pub const fn channels(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.shape.c,
            "the channels lie outside of the tensor"
        );
        // An empty batch has no memory in which channels could begin.
        let from = if self.shape.is_empty() { 0 } else { range.start };
        Layout {
            offset: self.offset + from,
            shape: self.shape.with_c(range.end - range.start),
            stride: self.stride,
        }
    }

    /// The samples in `range`, which must lie within the tensor.
    pub const fn samples(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.shape.n,
            "the samples lie outside of the tensor"
        );
        Layout {
            offset: self.offset + range.start * self.shape.h * self.shape.w * self.stride,
            shape: self.shape.with_n(range.end - range.start),
            stride: self.stride,
        }
    }

    /// The same elements as one vector a sample; needs contiguous pixels, as [`Layout::is_contiguous`] tells.
    pub const fn flatten(self) -> Self {
        assert!(self.is_contiguous(), "only contiguous pixels can be flattened");
        let shape = self.shape.flatten();
        Layout { offset: self.offset, shape, stride: shape.c }
    }
}

/// A run of elements in a flat arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first element's place.
    pub offset: usize,
    /// How many elements.
    pub len: usize,
}

impl Span {
    /// The `len` elements from `offset`.
    pub const fn new(offset: usize, len: usize) -> Self {
        Span { offset, len }
    }

    /// One past the last element.
    pub const fn end(self) -> usize {
        self.offset.saturating_add(self.len)
    }

    /// The span as a range of indices.
    pub const fn range(self) -> Range<usize> {
        self.offset..self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn slices_of_slices() {
        let whole = Layout::contiguous(Shape::new(4, 2, 3, 10));
        let part = whole.samples(1..3).channels(4..7);
        assert_eq!(part, Layout { offset: 64, shape: Shape::new(2, 2, 3, 3), stride: 10 });
        assert_eq!(part.end(), 64 + 11 * 10 + 3);
        assert!(part.check("op", "x", 177).is_ok());
        assert!(matches!(part.check("op", "x", 176), Err(Error::OutOfBounds { end: 177, len: 176, .. })));
    }

    #[test]
    fn an_empty_tensor_fits_anywhere() {
        assert_eq!(Layout::contiguous(Shape::new(0, 2, 2, 3)).end(), 0);
    }

    #[test]
    fn absurd_places_are_out_of_bounds() {
        assert!(Span::new(usize::MAX, 2).check("op", "w", 10).is_err());
        let far = Layout { offset: 1, shape: Shape::vectors(3, 4), stride: usize::MAX / 2 + 5 };
        assert!(matches!(far.check("op", "x", 100), Err(Error::OutOfBounds { .. })));
    }

    #[test]
    fn overlapping_pixels_are_refused() {
        let bad = Layout { offset: 0, shape: Shape::vectors(2, 4), stride: 3 };
        assert!(matches!(bad.check("op", "x", 100), Err(Error::NotContiguous { .. })));
    }
}
