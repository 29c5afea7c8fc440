use super::patch::Patch;
use super::tiles::Walk;
use crate::conv::problem::{Axis, inside};
use crate::element::Bf16;
use core::ops::Range;
use towers_program::View;

/// What some outputs of some images read, with its padding, such that the pixels that neighbouring outputs read with one
/// tap are neighbours too: under a stride, a grid for each phase of it.
///
/// Without a stride, the zeros behind a row are those in front of the next one, and those below an image the ones above the
/// next; what reads past the last one must find zeros there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// The first row and column of the image in the grid, negative in the padding.
    low: [isize; 2],
    /// Rows and columns of a phase.
    slots: [usize; 2],
    /// Rows and columns of the image.
    size: [usize; 2],
    step: [usize; 2],
    /// Elements from one phase, which holds all images, to the next, and from one block to the next.
    pub phase_len: usize,
    pub block_len: usize,
}

impl Grid {
    /// What `rows` and `columns` of a problem's outputs read. Blocks lie behind the phases.
    pub fn new(
        [y, x]: [&Axis; 2],
        images: usize,
        rows: &Range<usize>,
        columns: &Range<usize>,
        block: usize,
    ) -> Grid {
        let low = |axis: &Axis, outputs: &Range<usize>| (outputs.start * axis.step) as isize + axis.low();
        let low = [low(y, rows), low(x, columns)];
        let slots = |axis: &Axis, low: isize, outputs: usize| {
            let extent = axis.extent(outputs);
            let before = (-low).max(0).unsigned_abs();
            let behind = extent.saturating_sub(before + axis.size);
            let shared = if axis.step == 1 { before.min(behind).min(axis.reach()) } else { 0 };
            (extent - shared).div_ceil(axis.step)
        };
        let slots = [slots(y, low[0], rows.len()), slots(x, low[1], columns.len())];
        Grid::of([y, x], images, low, slots, block)
    }

    /// The largest of so many rows and columns, wherever they lie: one that shares no zeros.
    pub fn largest([y, x]: [&Axis; 2], images: usize, rows: usize, columns: usize, block: usize) -> Grid {
        let slots = |axis: &Axis, outputs: usize| axis.extent(outputs).div_ceil(axis.step);
        Grid::of([y, x], images, [0, 0], [slots(y, rows), slots(x, columns)], block)
    }

    fn of([y, x]: [&Axis; 2], images: usize, low: [isize; 2], slots: [usize; 2], block: usize) -> Grid {
        let phase_len = images * slots[0] * slots[1] * block;
        let step = [y.step, x.step];
        let block_len = step[0] * step[1] * phase_len;
        Grid { low, slots, size: [y.size, x.size], step, phase_len, block_len }
    }

    /// Columns of a phase: the distance from a pixel to the one below.
    pub fn width(&self) -> usize {
        self.slots[1]
    }

    /// Pixels of an image in a phase.
    pub fn pixels(&self) -> usize {
        self.slots[0] * self.slots[1]
    }

    pub fn phases(&self) -> usize {
        self.step[0] * self.step[1]
    }

    /// How many pixels on the last tap reads at most, in a phase.
    pub fn furthest(&self, [y, x]: [&Axis; 2]) -> usize {
        y.reach() / self.step[0] * self.width() + x.reach() / self.step[1]
    }

    /// Which phase holds the pixel so many rows and columns from an output's first one, and how many pixels on.
    pub fn place(&self, rise: [usize; 2]) -> [usize; 2] {
        let [y, x] = rise;
        let [sy, sx] = self.step;
        [y % sy * sx + x % sx, y / sy * self.width() + x / sx]
    }

    /// The place of the first pixel in the source, if the pixels of all images, and so many after them, lie
    /// there as in the grid.
    pub fn in_place(&self, source: View<[Bf16]>, past: usize) -> Option<usize> {
        let View { data, layout } = source;
        let images = layout.shape.n;
        let whole = |axis: usize| self.low[axis] == 0 && self.slots[axis] == self.size[axis];
        let unpadded = |axis: usize| {
            self.low[axis] >= 0 && self.low[axis].unsigned_abs() + self.slots[axis] <= self.size[axis]
        };
        let rows = unpadded(0) && (whole(0) || images == 1);
        let pixels = unpadded(1) && (whole(1) || (self.slots[0] == 1 && images == 1));
        let [row, pixel] = self.low.map(isize::unsigned_abs);
        let first = layout.offset + (row * self.size[1] + pixel) * layout.stride;
        let end = first + (images * self.pixels() + past) * layout.stride;
        (self.step == [1, 1] && rows && pixels && end <= data.len()).then_some(first)
    }

    /// The way through some channels of a phase of all images, or through their patches, if the grid is one of outputs that read
    /// such.
    pub fn walk(
        &self,
        patch: Option<Patch>,
        phase: usize,
        source: View<[Bf16]>,
        channels: &Range<usize>,
    ) -> Walk {
        match patch {
            Some(patch) => self.walk_patches(patch, source),
            None => self.walk_pixels(phase, source, channels),
        }
    }

    fn walk_pixels(&self, phase: usize, source: View<[Bf16]>, channels: &Range<usize>) -> Walk {
        let View { data, layout } = source;
        let images = layout.shape.n;
        let [sy, sx] = self.step;
        let first = [self.low[0] + (phase / sx) as isize, self.low[1] + (phase % sx) as isize];
        let along = |axis: usize| inside(self.slots[axis], self.size[axis], self.step[axis], first[axis]);
        let (rows, pixels) = (along(0), along(1));
        let exists = !rows.is_empty() && !pixels.is_empty();
        let rows = if exists { rows } else { 0..0 };
        let row_len = self.size[1] * layout.stride;
        let steps = [layout.shape.h * layout.shape.w * layout.stride, sy * row_len, sx * layout.stride];
        let at = |axis: usize, slot: usize| (first[axis] + (slot * self.step[axis]) as isize).unsigned_abs();
        let from = layout.offset + channels.start;
        let from =
            if exists { from + at(0, rows.start) * row_len + at(1, pixels.start) * layout.stride } else { 0 };
        let last = from
            + (images - 1) * steps[0]
            + rows.len().saturating_sub(1) * steps[1]
            + pixels.len().saturating_sub(1) * steps[2];
        assert!(!exists || last + channels.len() <= data.len(), "pixels of the source");
        Walk {
            src: data[from..].as_ptr(),
            steps,
            images,
            slots: self.slots,
            inside: [rows, pixels],
            channels: channels.len(),
            len: images * self.pixels(),
            patch: None,
        }
    }

    fn walk_patches(&self, patch: Patch, source: View<[Bf16]>) -> Walk {
        let View { data, layout } = source;
        let image_len = layout.shape.h * layout.shape.w * layout.stride;
        assert!(layout.offset + layout.shape.n * image_len <= data.len(), "images of the source");
        Walk {
            src: data[layout.offset..].as_ptr(),
            steps: [image_len, 0, 0],
            images: layout.shape.n,
            slots: self.slots,
            inside: [0..0, 0..0],
            channels: patch.len(),
            len: layout.shape.n * self.pixels(),
            patch: Some((patch, self.low.map(isize::unsigned_abs))),
        }
    }
}
