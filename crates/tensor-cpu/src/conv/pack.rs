use super::cut::Segment;
use super::kernels::{BLOCK, Kernels, PackRun};
use super::plan::{Panel, Pass, Plan};
use super::problem::{Merge, Problem, inside};
use core::ops::Range;

/// Elements that packing asks for ahead of those it copies: the hardware's own look-ahead ends with every page.
pub(super) const AHEAD: usize = 1024;

/// Copies the weights of one pass and panel to `to`, as (block of channels, tap, channel, column), columns padded with
/// zeros to whole vectors.
pub(super) fn weights(p: &Problem, pass: &Pass, panel: Panel, lanes: usize, w: &[f32], to: &mut [f32]) {
    let width = panel.vectors * lanes;
    let (first, columns) = (panel.column, panel.columns);
    let mut rest = to;
    for block in pass.channels.clone().step_by(BLOCK) {
        let count = BLOCK.min(pass.channels.end - block);
        for tap in pass.taps.clone() {
            let w = &w[p.weights(tap)..][..p.channels * p.columns];
            let (to, after) = rest.split_at_mut(count * width);
            rest = after;
            if p.transposed {
                if columns < width {
                    to.fill(0.0);
                }
                for column in 0..columns {
                    let from = &w[(first + column) * p.channels + block..][..count];
                    to[column..].iter_mut().step_by(width).zip(from).for_each(|(to, &w)| *to = w);
                }
            } else {
                for (i, to) in to.chunks_exact_mut(width).enumerate() {
                    let (to, padding) = to.split_at_mut(columns);
                    to.copy_from_slice(&w[(block + i) * p.columns + first..][..columns]);
                    padding.fill(0.0);
                }
            }
        }
    }
}

/// What a segment reads in one pass, packed: blocks of channels, each with images, rows, and in a row the pixels of
/// each phase of the step, with zeros where the source ends.
pub(super) struct PackedSource {
    /// Elements from one block, image and row to the next.
    pub block_len: usize,
    pub image_len: usize,
    pub row_len: usize,
    /// Pixels of one phase in a row.
    slots: usize,
}

impl PackedSource {
    pub fn new(p: &Problem, plan: &Plan, segment: &Segment) -> PackedSource {
        let slots = plan.slots(p, segment.pixels.len());
        let row_len = slots * p.x.step * BLOCK;
        let image_len = p.y.extent(segment.rows.len()) * row_len;
        PackedSource { block_len: plan.block_len(p), image_len, row_len, slots }
    }

    /// Elements from an output's first source pixel to the one that `tap` reads.
    pub fn tap(&self, p: &Problem, tap: usize) -> usize {
        let (y, x) = (p.y.rise(tap / p.x.taps), p.x.rise(tap % p.x.taps));
        y * self.row_len + (x % p.x.step * self.slots + x / p.x.step) * BLOCK
    }

    /// Packs some channels, whole blocks or the last ones, to `to`. `line` is memory for a row of the source.
    pub fn fill(
        &self,
        p: &Problem,
        kernels: &Kernels,
        segment: &Segment,
        channels: Range<usize>,
        source: &[f32],
        to: &mut [f32],
        line: &mut [f32],
    ) {
        if channels.is_empty() || self.image_len == 0 {
            return;
        }
        let blocks = channels.len().div_ceil(BLOCK);
        let top = (segment.rows.start * p.y.step) as isize + p.y.low();
        let rows = self.image_len / self.row_len;
        for (i, image) in segment.images.clone().enumerate() {
            for row in 0..rows {
                let at = i * self.image_len + row * self.row_len;
                let y = top + row as isize;
                if y < 0 || y as usize >= p.y.size {
                    for block in 0..blocks {
                        to[at + block * self.block_len..][..self.row_len].fill(0.0);
                    }
                } else {
                    let from = p.source.offset
                        + (image * p.source.shape.h + y as usize) * p.source.shape.w * p.source.stride;
                    match &p.merge {
                        None => {
                            self.fill_row(p, kernels, segment, &channels, &source[from..], &mut to[at..]);
                        }
                        Some(merge) => self.fill_merged(
                            p,
                            merge,
                            segment,
                            &channels,
                            &source[from..],
                            &mut to[at..],
                            line,
                        ),
                    }
                }
            }
        }
    }

    /// Packs one row of the source.
    fn fill_row(
        &self,
        p: &Problem,
        kernels: &Kernels,
        segment: &Segment,
        channels: &Range<usize>,
        source: &[f32],
        to: &mut [f32],
    ) {
        let step = p.x.step;
        let left = (segment.pixels.start * step) as isize + p.x.low();
        let blocks = channels.len().div_ceil(BLOCK);
        let last = channels.len() - (blocks - 1) * BLOCK;
        for phase in 0..step {
            // Of the slots, those before `start` and from `end` on lie outside of the source.
            let first = left + phase as isize;
            let Range { start, end } = inside(self.slots, p.x.size, step, first);
            for block in 0..blocks {
                let to = &mut to[block * self.block_len + phase * self.slots * BLOCK..][..self.slots * BLOCK];
                to[..start * BLOCK].fill(0.0);
                to[end * BLOCK..].fill(0.0);
            }
            if start < end {
                let from = (first + (start * step) as isize) as usize * p.source.stride + channels.start;
                let run = PackRun {
                    src: source[from..].as_ptr(),
                    src_step: step * p.source.stride,
                    ahead: AHEAD,
                    dst: to[(phase * self.slots + start) * BLOCK..].as_mut_ptr(),
                    dst_step: BLOCK,
                    block_len: self.block_len,
                    count: end - start,
                    blocks,
                    last,
                };
                debug_assert!(from + (run.count - 1) * run.src_step + channels.len() <= source.len());
                debug_assert!((blocks - 1) * self.block_len + (phase * self.slots + end) * BLOCK <= to.len());
                // SAFETY: the kernels fit the processor; the run lies inside of both slices, by the bounds above:
                // `end` is at most the source's end and at most the slots.
                unsafe { (kernels.pack)(&run) }
            }
        }
    }

    /// Packs one row of a source with few channels: the pixels under the kernel become the channels of one.
    fn fill_merged(
        &self,
        p: &Problem,
        merge: &Merge,
        segment: &Segment,
        channels: &Range<usize>,
        source: &[f32],
        to: &mut [f32],
        line: &mut [f32],
    ) {
        // First all pixels that the segment reads, back to back, zeros where the row ends.
        let (c, width) = (merge.channels, p.source.shape.w);
        let left = (segment.pixels.start * merge.stride) as isize - merge.left as isize;
        for (i, to) in line.chunks_mut(c).enumerate() {
            let x = left + i as isize;
            if x >= 0 && (x as usize) < width {
                let count = to.len();
                to.copy_from_slice(&source[x as usize * p.source.stride..][..count]);
            } else {
                to.fill(0.0);
            }
        }
        // Then whole blocks from there: what they hold past the channels is not read.
        let blocks = channels.len().div_ceil(BLOCK);
        for slot in 0..segment.pixels.len() {
            let from = &line[slot * merge.stride * c + channels.start..][..blocks * BLOCK];
            for (block, from) in from.chunks_exact(BLOCK).enumerate() {
                to[block * self.block_len + slot * BLOCK..][..BLOCK].copy_from_slice(from);
            }
        }
    }
}
