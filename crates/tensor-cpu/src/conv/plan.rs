use super::cut::Cut;
use super::kernels::{BLOCK, Kernels};
use super::problem::Problem;
use core::ops::Range;

/// Taps of one pass at most: a pass keeps their offsets on the stack.
pub(super) const PASS_TAPS: usize = 64;

/// About so many products are summed for an output in one pass, so that its packed weights stay near the core.
const PASS_PRODUCTS: usize = 288;

/// At most so many elements of a segment are packed at once if several passes can share them, so that they stay in the
/// core's second cache.
const CHUNK_LEN: usize = 96 << 10;

/// About so many output pixels make a task at most, and so many elements that it reads and writes; at least so many tasks are
/// wanted.
const TASK_PIXELS: usize = 1024;
const TASK_LEN: usize = 96 << 10;
const MIN_TASKS: usize = 8;

/// How a [`Problem`] is cut up. It depends on the problem and the vectors' width alone, never on the number of threads.
///
/// A *segment* is a box of output pixels: some images, or some rows of one, or some pixels of one row. A
/// *group* is some panels of columns, a *panel* one to four vectors of columns, a *pass* some blocks of
/// channels and some taps. A task is one segment and one group: for each pass it packs the segment's inputs,
/// then adds to the outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Vectors of columns; the panels that they form are the cut's.
    vectors: usize,
    pub cut: Cut,
    lanes: usize,
    /// Blocks of channels in a pass, and that are packed at once: those of some passes.
    pass_blocks: usize,
    chunk_blocks: usize,
}

/// Some channels, in blocks, and some taps.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub blocks: usize,
    pub channels: Range<usize>,
    pub taps: Range<usize>,
    /// Products before those of this pass, for one output.
    pub before: usize,
    pub is_first: bool,
    pub is_last: bool,
}

impl Pass {
    /// Products that this pass sums for one output.
    pub fn products(&self) -> usize {
        self.channels.len() * self.taps.len()
    }
}

/// Some columns of the weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// The first column, counted with the padding of the panels before.
    pub column: usize,
    pub vectors: usize,
    /// Columns that exist.
    pub columns: usize,
}

impl Plan {
    pub fn new(p: &Problem, kernels: &Kernels) -> Plan {
        let vectors = p.columns.div_ceil(kernels.width);
        let widest = kernels.sum.len();
        // Narrow images: tall tiles of two rows and fewer columns, which read fewer weights.
        let narrow = 2 * p.x.outputs <= kernels.sum[1].len() && p.y.outputs > 1;
        let widest = if narrow { widest.min(2) } else { widest };
        let panels = vectors.div_ceil(widest).max(1);
        let cut = Cut::new(p, Self::segment_size(p), panels, MIN_TASKS);
        let pass_blocks = (PASS_PRODUCTS / (p.taps().clamp(1, PASS_TAPS) * BLOCK)).max(1);
        let mut plan = Plan { vectors, cut, lanes: kernels.width, pass_blocks, chunk_blocks: 0 };
        let passes = (CHUNK_LEN / (pass_blocks * plan.block_len(p)).max(1)).max(1);
        plan.chunk_blocks = (passes * pass_blocks).min(p.blocks());
        plan
    }

    fn segment_size(p: &Problem) -> [usize; 3] {
        let all = p.images * p.pixels();
        // Under a stride there is more to read for each output.
        let each = p.channels * p.y.step * p.x.step + p.columns;
        let most = (TASK_LEN / each.max(1)).clamp(TASK_PIXELS / 8, TASK_PIXELS);
        let target = all.div_ceil(MIN_TASKS).clamp(TASK_PIXELS / 8, most);
        let [rows, pixels] = [p.y.outputs, p.x.outputs];
        if rows == 1 {
            let parts = pixels.div_ceil(target).max(1);
            return if parts > 1 {
                [1, 1, pixels.div_ceil(parts)]
            } else {
                [(target / pixels.max(1)).max(1), 1, pixels]
            };
        }
        if rows * pixels > target {
            let parts = (rows * pixels).div_ceil(target);
            return [1, rows.div_ceil(parts), pixels];
        }
        [target / (rows * pixels).max(1), rows, pixels]
    }

    pub fn panel(&self, p: &Problem, index: usize) -> Panel {
        // The first `wide` panels have a vector more than the others.
        let (least, wide) = (self.vectors / self.cut.panels, self.vectors % self.cut.panels);
        let column = (index * least + index.min(wide)) * self.lanes;
        let vectors = least + usize::from(index < wide);
        Panel { column, vectors, columns: (vectors * self.lanes).min(p.columns - column) }
    }

    pub fn passes(&self, p: &Problem) -> impl Iterator<Item = Pass> + use<> {
        let (blocks, taps, channels, step) = (p.blocks().max(1), p.taps(), p.channels, self.pass_blocks);
        (0..blocks).step_by(step).flat_map(move |block| {
            let of_pass = block * BLOCK..((block + step) * BLOCK).min(channels);
            (0..taps.max(1)).step_by(PASS_TAPS).map(move |tap| {
                let taps_of_pass = tap..(tap + PASS_TAPS).min(taps);
                Pass {
                    blocks: of_pass.len().div_ceil(BLOCK),
                    is_first: block == 0 && tap == 0,
                    before: of_pass.start * taps + of_pass.len() * tap,
                    is_last: block + step >= blocks && tap + PASS_TAPS >= taps,
                    channels: of_pass.clone(),
                    taps: taps_of_pass,
                }
            })
        })
    }

    /// Lanes of a vector.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Columns with the padding to whole vectors.
    pub fn padded(&self) -> usize {
        self.vectors * self.lanes
    }

    /// Whether each task packs the weights that it needs by itself, since no other one needs them.
    pub fn packs_late(&self) -> bool {
        self.cut.segments() == 1
    }

    /// Elements for the weights that are packed before the tasks.
    pub fn weights_len(&self, p: &Problem) -> usize {
        if self.packs_late() { 0 } else { p.taps() * p.channels * self.padded() }
    }

    /// Elements for one pass of the weights of one panel.
    pub fn panel_len(&self, p: &Problem) -> usize {
        let widest = self.vectors.div_ceil(self.cut.panels) * self.lanes;
        self.pass_blocks * BLOCK * p.taps().min(PASS_TAPS) * widest
    }

    /// Packed pixels in a row of a segment: for each phase of the step, the source pixels that leave it.
    pub fn slots(&self, p: &Problem, pixels: usize) -> usize {
        p.x.extent(pixels).div_ceil(p.x.step)
    }

    /// Elements of one block of channels of a packed segment.
    pub fn block_len(&self, p: &Problem) -> usize {
        self.cut.size[0].min(p.images)
            * p.y.extent(self.cut.size[1])
            * self.slots(p, self.cut.size[2])
            * p.x.step
            * BLOCK
    }

    /// Channels that are packed with those of this pass, if it is the first to need them.
    pub fn chunk(&self, p: &Problem, pass: &Pass) -> Option<Range<usize>> {
        let first = pass.channels.start / BLOCK;
        (pass.taps.start == 0 && first.is_multiple_of(self.chunk_blocks))
            .then(|| pass.channels.start..((first + self.chunk_blocks) * BLOCK).min(p.channels))
    }

    /// Where the channels of a pass start in a packed segment.
    pub fn in_chunk(&self, p: &Problem, pass: &Pass) -> usize {
        pass.channels.start / BLOCK % self.chunk_blocks.max(1) * self.block_len(p)
    }

    /// Elements for a packed segment.
    pub fn source_len(&self, p: &Problem) -> usize {
        self.chunk_blocks * self.block_len(p)
    }

    /// Elements for a row of the source on the way to a packed segment: see [`Merge`](super::problem::Merge).
    pub fn line_len(&self, p: &Problem) -> usize {
        p.merge.map_or(0, |merge| {
            self.cut.size[2] * merge.stride * merge.channels + p.blocks() * BLOCK + p.channels
        })
    }
}
