use super::axis::Axis;
use super::kernels::{BLOCK, Line, Ring};
use core::ops::Range;
use towers_program::Layout;
use towers_program::ops::Depthwise;

/// Elements of the packed rows of one block of channels under some output rows: what stays in the nearest cache.
const NEAR: usize = 6 << 10;

/// Elements of the packed rows of all of a task's blocks: what stays in the core's own cache.
const RING: usize = 48 << 10;

/// Output rows that are computed before more rows are packed, at most.
const MOST_ROWS: usize = 8;

/// So many tasks are wanted, if each has so many outputs.
const TASKS: usize = 64;
const OUTPUTS: usize = 16 << 10;

/// Lines that a kernel gets at once.
pub(super) const LINES: usize = 16;

/// Of which channel of a tensor a packed one is a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Channels {
    /// The one of the same number.
    Same,
    /// That of the number divided by so many.
    Repeated(usize),
    /// Of each so many the one with the plane's number.
    Every(usize),
}

impl Channels {
    #[inline(always)]
    pub fn of(self, packed: usize, plane: usize) -> usize {
        match self {
            Channels::Same => packed,
            Channels::Repeated(times) => packed / times,
            Channels::Every(count) => packed * count + plane,
        }
    }
}

/// How sums are cut up, by the shapes alone: into blocks of channels, groups of which are a task for some rows of a
/// sample. The rows of the source under an output row are packed into a ring of the last ones: in blocks, in f32, and
/// with zeros beside the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub rows: Axis,
    pub columns: Axis,
    /// What is packed, and the other tensor: what is written, or for a gradient of weights also read.
    pub source: Layout,
    pub out: Layout,
    pub kernel: [usize; 2],
    /// Packed channels; filters of an input channel that are summed over; where packed ones come from.
    pub channels: usize,
    pub planes: usize,
    pub of_source: Channels,
    pub of_weights: Channels,
    /// Output rows between packings; packed rows, and pixels of one.
    pub at_once: usize,
    pub slots: usize,
    pub width: usize,
    /// Blocks of channels in a group, and groups.
    pub blocks: usize,
    pub groups: usize,
    /// Parts into which the rows of a sample are cut.
    pub segments: usize,
}

/// The `index`th of `parts` nearly equal portions of `0..all`.
pub(super) fn portion(all: usize, parts: usize, index: usize) -> Range<usize> {
    let start = |i: usize| i * (all / parts) + i.min(all % parts);
    start(index)..start(index + 1)
}

impl Plan {
    pub fn forward(conv: &Depthwise, x: Layout, y: Layout) -> Plan {
        let of_source =
            if conv.multiplier == 1 { Channels::Same } else { Channels::Repeated(conv.multiplier) };
        Plan::new(conv, [x, y], false, conv.outputs(), 1, [of_source, Channels::Same])
    }

    pub fn backward(conv: &Depthwise, dy: Layout, dx: Layout) -> Plan {
        let every = if conv.multiplier == 1 { Channels::Same } else { Channels::Every(conv.multiplier) };
        Plan::new(conv, [dy, dx], true, conv.inputs, conv.multiplier, [every; 2])
    }

    fn new(
        conv: &Depthwise,
        [source, out]: [Layout; 2],
        backward: bool,
        channels: usize,
        planes: usize,
        [of_source, of_weights]: [Channels; 2],
    ) -> Plan {
        let axis = |k: usize, size: usize, outputs: usize, pad: usize| Axis {
            size,
            outputs,
            kernel: conv.kernel[k],
            stride: conv.stride[k],
            dilation: conv.dilation[k],
            pad,
            backward,
        };
        let (s, o) = (source.shape, out.shape);
        let (rows, columns) = (axis(0, s.h, o.h, conv.pad.top), axis(1, s.w, o.w, conv.pad.left));
        let width = if o.is_empty() { 0 } else { columns.under(0..o.w).len() };
        let all = channels.div_ceil(BLOCK).max(1);
        let slots = |at_once: usize| rows.most_under(at_once).min(s.h).max(1);
        let len = |at_once: usize| planes * slots(at_once) * width * BLOCK;
        let fits = |most: usize, blocks: usize| {
            (2..=MOST_ROWS.min(o.h)).rev().find(|&at_once| blocks * len(at_once) <= most)
        };
        let near = fits(NEAR, 1).unwrap_or(1);
        let at_once = fits(RING, all).unwrap_or(1).min(near);
        let fitting = (RING / len(at_once).max(1)).clamp(1, all);
        // If not all blocks fit, more rows may.
        let at_once = if fitting < all { near } else { at_once };
        let groups = all.div_ceil((RING / len(at_once).max(1)).clamp(1, all));
        let wanted = (o.len() / OUTPUTS).clamp(1, TASKS).div_ceil(o.n.max(1));
        let groups = groups.max(wanted.min(all / 4));
        let blocks = all.div_ceil(groups);
        let groups = all.div_ceil(blocks);
        let segments = wanted.div_ceil(groups).min(o.h.div_ceil(at_once)).max(1);
        Plan {
            rows,
            columns,
            source,
            out,
            kernel: conv.kernel,
            channels,
            planes,
            of_source,
            of_weights,
            at_once,
            slots: slots(at_once),
            width,
            blocks,
            groups,
            segments,
        }
    }

    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements of a packed row of one block, of a plane of one, and of a block.
    pub fn row_len(&self) -> usize {
        self.width * BLOCK
    }

    pub fn plane_len(&self) -> usize {
        self.slots * self.row_len()
    }

    pub fn ring_len(&self) -> usize {
        self.planes * self.plane_len()
    }

    /// Elements of the packed weights of a block.
    pub fn weights_len(&self) -> usize {
        self.planes * self.taps() * BLOCK
    }

    /// Elements of a block of the outputs of [`LINES`] lines.
    pub fn lines_len(&self) -> usize {
        LINES * self.out.shape.w * BLOCK
    }

    /// The blocks of a group.
    pub fn group(&self, index: usize) -> Range<usize> {
        let all = self.channels.div_ceil(BLOCK);
        (index * self.blocks).min(all)..((index + 1) * self.blocks).min(all)
    }

    /// The channels of a block that exist.
    pub fn lanes(&self, block: usize) -> usize {
        (self.channels - block * BLOCK).min(BLOCK)
    }

    pub fn ring(&self, start: *const f32) -> Ring {
        let (plane_len, row_len) = (self.plane_len(), self.row_len());
        Ring { start, plane_len, planes: self.planes, row_len, slots: self.slots }
    }

    /// Elements before a pixel's first channel in the tensor that is not packed.
    pub fn out_at(&self, sample: usize, row: usize, column: usize) -> usize {
        let shape = self.out.shape;
        self.out.offset + ((sample * shape.h + row) * shape.w + column) * self.out.stride
    }

    /// The source rows under some output rows, those outside of the image left out.
    pub fn under(&self, rows: Range<usize>) -> Range<usize> {
        let under = self.rows.under(rows);
        let clip = |at: isize| at.clamp(0, self.rows.size as isize) as usize;
        clip(under.start)..clip(under.end)
    }

    /// The line of an output row that begins with its output `phase`.
    pub fn line(&self, row: usize, phase: usize) -> Line {
        let (of_rows, of_columns) = (self.rows.taps(row), self.columns.taps(phase));
        let inside = of_rows.inside(self.rows.size);
        let first = of_rows.first + inside.start as isize * of_rows.tap_step;
        let slots = self.slots as isize;
        let low = self.columns.under(0..self.columns.outputs).start;
        let w_steps = [of_rows.w_step * self.kernel[1] * BLOCK, of_columns.w_step * BLOCK];
        let w_row = of_rows.w_first + inside.start * of_rows.w_step;
        Line {
            out: 0,
            count: self.columns.count(phase),
            rows: inside.len(),
            slot: first.rem_euclid(slots) as usize,
            slot_step: of_rows.tap_step.rem_euclid(slots) as usize,
            taps: of_columns.count,
            x: (of_columns.first - low).max(0) as usize * BLOCK,
            x_step: of_columns.tap_step * BLOCK as isize,
            w: (w_row * self.kernel[1] + of_columns.w_first) * BLOCK,
            w_steps,
        }
    }

    /// Elements of a packed row from what one output of a line reads to what the next one does.
    pub fn step(&self) -> usize {
        self.columns.taps(0).step * BLOCK
    }
}
