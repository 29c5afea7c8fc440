use crate::element::Element;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Layout, View, ViewMut};

/// The row length that contiguous tensors are cut into where an op treats every element alike.
const FLAT: usize = 1024;

/// A tensor to read as rows: a row holds the channels of one pixel.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, E> {
    data: &'a [E],
    shape: Rectangle,
}

/// A tensor to write as rows, which the tasks of a loop share.
#[derive(Clone, Copy)]
pub(crate) struct RowsMut<'a, E> {
    data: Shards<'a, E>,
    shape: Rectangle,
}

#[derive(Clone, Copy)]
struct Rectangle {
    count: usize,
    width: usize,
    stride: usize,
    /// One past the last element: only in a flattened tensor it cuts the last row short.
    end: usize,
}

impl Rectangle {
    fn of(layout: Layout) -> Self {
        let (shape, end) = (layout.shape, layout.end() - layout.offset);
        let count = if shape.c == 0 { 0 } else { shape.rows() };
        Rectangle { count, width: shape.c, stride: layout.stride, end }
    }

    fn flat(len: usize) -> Self {
        Rectangle { count: len.div_ceil(FLAT), width: FLAT, stride: FLAT, end: len }
    }

    #[inline(always)]
    fn range(self, row: usize) -> Range<usize> {
        let start = row * self.stride;
        start..(start + self.width).min(self.end)
    }
}

/// Whether an op that treats every element alike may forget where the pixels begin.
pub(crate) fn all_contiguous(layouts: &[Layout]) -> bool {
    layouts.iter().all(|layout| layout.is_contiguous())
}

impl<'a, E: Element> Rows<'a, E> {
    pub(crate) fn new(x: View<'a, [E]>) -> Self {
        Rows { data: &x.data[x.layout.offset..x.layout.end()], shape: Rectangle::of(x.layout) }
    }

    /// Rows of any length, if `flat`: the tensor must be contiguous.
    pub(crate) fn elements(x: View<'a, [E]>, flat: bool) -> Self {
        let rows = Rows::new(x);
        if flat { Rows { shape: Rectangle::flat(rows.data.len()), ..rows } } else { rows }
    }

    pub(crate) fn count(self) -> usize {
        self.shape.count
    }

    pub(crate) fn width(self) -> usize {
        self.shape.width
    }

    #[inline(always)]
    pub(crate) fn row(self, row: usize) -> &'a [E] {
        &self.data[self.shape.range(row)]
    }
}

impl<'a, E: Element> RowsMut<'a, E> {
    pub(crate) fn new(y: ViewMut<'a, [E]>) -> Self {
        let data = Shards::new(&mut y.data[y.layout.offset..y.layout.end()]);
        RowsMut { data, shape: Rectangle::of(y.layout) }
    }

    /// Rows of any length, if `flat`: the tensor must be contiguous.
    pub(crate) fn elements(y: ViewMut<'a, [E]>, flat: bool) -> Self {
        let len = y.layout.end() - y.layout.offset;
        let rows = RowsMut::new(y);
        if flat { RowsMut { shape: Rectangle::flat(len), ..rows } } else { rows }
    }

    /// One row.
    ///
    /// # Safety
    /// No other loan of the same row may be alive.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, row: usize) -> &'a mut [E] {
        // SAFETY: rows do not overlap (`Layout::check`), and the caller promises that this one is not lent.
        unsafe { self.data.part(self.shape.range(row)) }
    }
}

/// Rows cut into blocks, one a task, by the shape alone: so no result depends on the number of threads.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    rows: usize,
    size: usize,
    backwards: bool,
}

impl Blocks {
    /// Blocks for ops that treat rows one by one: about 64 KiB of each operand, so that a task outweighs its start.
    pub(crate) fn for_map<E: Element>(x: Rows<E>) -> Self {
        Blocks { rows: x.count(), size: (16_384 / x.width().max(1)).max(1), backwards: false }
    }

    /// Blocks for sums over rows: at most 512 rows, which f32 can add up without harm, and otherwise about 64 blocks of
    /// at least 16 KiB.
    pub(crate) fn for_sums<E: Element>(x: Rows<E>) -> Self {
        let size = x.count().div_ceil(64).max(4096 / x.width().max(1)).clamp(1, 512);
        Blocks { rows: x.count(), size, backwards: false }
    }

    /// The most blocks that [`Blocks::for_sums`] makes of so many rows or fewer: what scratch memory is asked for, since a
    /// smaller batch may be cut into more.
    pub(crate) fn most_for_sums(rows: usize) -> usize {
        rows.min(64).max(rows.div_ceil(512))
    }

    /// The same blocks, the last one first.
    pub(crate) fn reversed(self) -> Self {
        Blocks { backwards: true, ..self }
    }

    pub(crate) fn count(self) -> usize {
        self.rows.div_ceil(self.size)
    }

    pub(crate) fn range(self, block: usize) -> Range<usize> {
        let block = if self.backwards { self.count() - 1 - block } else { block };
        let start = block * self.size;
        start..(start + self.size).min(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_program::Shape;

    #[test]
    fn rows_of_a_channel_slice_and_of_a_flat_tensor() {
        let data: Vec<f32> = (0..2500).map(|k| k as f32).collect();
        let slice = Layout::contiguous(Shape::vectors(5, 500)).channels(3..5);
        let rows = Rows::new(View::new(&data[..], slice));
        assert_eq!((rows.count(), rows.row(4)), (5, &[2003.0, 2004.0][..]));
        let flat = Rows::elements(View::new(&data[..], Layout::contiguous(Shape::vectors(5, 500))), true);
        assert_eq!((flat.count(), flat.row(2).len(), flat.row(2)[0]), (3, 2500 - 2048, 2048.0));
    }

    #[test]
    fn blocks_cover_all_rows_once() {
        for (count, width) in [(0, 4), (1, 1), (513, 1), (1000, 7), (65_536, 96), (3136, 336)] {
            let data = vec![0.0; count * width];
            let rows =
                |count| Rows::new(View::new(&data[..], Layout::contiguous(Shape::vectors(count, width))));
            let most = Blocks::most_for_sums(count);
            assert!((0..=count).all(|count| Blocks::for_sums(rows(count)).count() <= most));
            let rows = rows(count);
            for blocks in [Blocks::for_map(rows), Blocks::for_sums(rows)] {
                let covered: Vec<usize> = (0..blocks.count()).flat_map(|b| blocks.range(b)).collect();
                assert!(covered.into_iter().eq(0..count));
                let ends = blocks.reversed();
                assert!(
                    (0..ends.count())
                        .rev()
                        .map(|b| ends.range(b))
                        .eq((0..ends.count()).map(|b| blocks.range(b)))
                );
            }
        }
    }
}
