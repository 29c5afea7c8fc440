use super::tiles::{Narrow, Tiles};
use crate::conv::problem::{Axis, inside};
use core::ops::Range;
use tensor_backend::Layout;

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
    /// Channels in a block.
    block: usize,
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
            let shared = if axis.step == 1 { before.min(behind).min(axis.taps - 1) } else { 0 };
            (extent - shared).div_ceil(axis.step)
        };
        let slots = [slots(y, low[0], rows.len()), slots(x, low[1], columns.len())];
        let phase_len = images * slots[0] * slots[1] * block;
        let step = [y.step, x.step];
        let block_len = step[0] * step[1] * phase_len;
        Grid { low, slots, size: [y.size, x.size], step, block, phase_len, block_len }
    }

    /// Columns of a phase: what lies between a pixel and the one below.
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

    /// How many pixels on the last of some taps reads at most, in a phase.
    pub fn furthest(&self, [y, x]: [usize; 2]) -> usize {
        (y - 1) / self.step[0] * self.width() + (x - 1) / self.step[1]
    }

    /// Which phase holds the pixel so many rows and columns from an output's first one, and how many pixels on.
    pub fn place(&self, rise: [usize; 2]) -> [usize; 2] {
        let [y, x] = rise;
        let [sy, sx] = self.step;
        [y % sy * sx + x % sx, y / sy * self.width() + x / sx]
    }

    /// Rounds some channels of an image, which begins at `source[from]`, into blocks.
    pub fn fill(
        &self,
        tiles: &Tiles,
        source: &[f32],
        layout: Layout,
        from: usize,
        channels: &Range<usize>,
        to: &mut [u16],
    ) {
        let blocks = channels.len().div_ceil(self.block);
        let [sy, sx] = self.step;
        let (width, row_len) = (self.width(), self.width() * self.block);
        let rows = self.slots[0];
        for (phase, row) in (0..self.phases()).flat_map(|phase| (0..rows).map(move |row| (phase, row))) {
            let at = phase * self.phase_len + row * row_len;
            let y = self.low[0] + (row * sy + phase / sx) as isize;
            // Of the slots, those before `start` and from `end` on lie outside of the image.
            let first = self.low[1] + (phase % sx) as isize;
            let exists = y >= 0 && (y as usize) < self.size[0];
            let Range { start, end } =
                if exists { inside(width, self.size[1], sx, first) } else { width..width };
            for block in 0..blocks {
                let to = &mut to[at + block * self.block_len..][..row_len];
                to[..start * self.block].fill(0);
                to[end * self.block..].fill(0);
            }
            if start == end {
                continue;
            }
            let x = (first + (start * sx) as isize) as usize;
            let from = from + (y as usize * self.size[1] + x) * layout.stride + channels.start;
            let run = Narrow {
                src: source[from..].as_ptr(),
                src_step: sx * layout.stride,
                dst: to[at + start * self.block..].as_mut_ptr(),
                dst_step: self.block,
                block_len: self.block_len,
                count: end - start,
                channels: channels.len(),
                block: self.block,
            };
            debug_assert!(from + (run.count - 1) * run.src_step + channels.len() <= source.len());
            debug_assert!(at + (blocks - 1) * self.block_len + end * self.block <= to.len());
            // SAFETY: the functions fit the processor; the run lies inside of both slices, by the bounds above: `end` is at
            // most the image's end and at most the slots.
            unsafe { (tiles.narrow)(&run) }
        }
    }
}
