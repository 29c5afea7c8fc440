use super::cut::Segment;
use super::kernels::{BLOCK, Kernels, SumTile};
use super::pack::{self, PackedSource};
use super::plan::{PASS_TAPS, Panel, Pass, Plan};
use super::problem::Problem;
use crate::Cpu;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::Write;

/// What becomes of the sums: in this order.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    /// Whether to add to the old outputs.
    pub add: bool,
    /// A factor and a second addend for each column.
    pub affine: Option<[&'a [f32]; 2]>,
    /// A ReLU, with the largest number that it gives.
    pub relu: Option<f32>,
}

impl<'a> Finish<'a> {
    /// Sums as they are.
    pub fn sums(mode: Write) -> Self {
        Finish { bias: None, add: mode == Write::Add, affine: None, relu: None }
    }

    /// The same for some of the outputs.
    pub fn columns(self, columns: Range<usize>) -> Self {
        let of = |run: &'a [f32]| &run[columns.clone()];
        Finish { bias: self.bias.map(of), affine: self.affine.map(|runs| runs.map(of)), ..self }
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch_len(p: &Problem, kernels: &Kernels, threads: usize) -> usize {
    let plan = Plan::new(p, kernels);
    plan.weights_len(p).next_multiple_of(16) + threads * worker_len(p, &plan)
}

/// Elements of scratch memory for one thread: a packed segment, a row on the way there, and a packed panel where tasks pack weights.
fn worker_len(p: &Problem, plan: &Plan) -> usize {
    let panel = if plan.packs_late() { plan.panel_len(p) } else { 0 };
    [plan.source_len(p), plan.line_len(p), panel].map(|len| len.next_multiple_of(16)).iter().sum()
}

/// Computes all outputs of the problem, which has some.
pub(super) fn run(cpu: &Cpu, p: &Problem, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
    let kernels = Kernels::of(cpu.simd());
    let plan = Plan::new(p, kernels);
    let mut scratch = cpu.scratch(scratch_len(p, kernels, cpu.pool().count()));
    let (weights, workers) = scratch.split_at_mut(plan.weights_len(p).next_multiple_of(16));
    if !plan.packs_late() {
        pack_all(cpu, p, &plan, w, weights);
    }
    let (worker_len, workers) = (worker_len(p, &plan), Shards::new(workers));
    let job = Job { p, plan: &plan, kernels, source, w, packed: weights, finish, out: Shards::new(out) };
    cpu.pool().run_on(plan.cut.tasks(), &|thread, task| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };
        job.task(task, memory);
    });
}

/// Packs all weights: pass by pass, and in a pass panel by panel.
fn pack_all(cpu: &Cpu, p: &Problem, plan: &Plan, w: &[f32], to: &mut [f32]) {
    let passes = plan.passes(p).count();
    let to = Shards::new(to);
    cpu.pool().run(passes * plan.cut.panels, &|task| {
        let Some(pass) = plan.passes(p).nth(task / plan.cut.panels) else { return };
        let panel = plan.panel(p, task % plan.cut.panels);
        // SAFETY: parts of different passes and panels do not overlap.
        let to = unsafe { to.part(packed_range(plan, &pass, panel, plan.lanes())) };
        pack::weights(p, &pass, panel, plan.lanes(), w, to);
    });
}

/// Where the packed weights of a pass and panel lie.
fn packed_range(plan: &Plan, pass: &Pass, panel: Panel, lanes: usize) -> Range<usize> {
    let start = pass.before * plan.padded() + pass.products() * panel.column;
    start..start + pass.products() * panel.vectors * lanes
}

struct Job<'a> {
    p: &'a Problem,
    plan: &'a Plan,
    kernels: &'static Kernels,
    source: &'a [f32],
    w: &'a [f32],
    packed: &'a [f32],
    finish: Finish<'a>,
    out: Shards<'a>,
}

impl Job<'_> {
    /// One segment and one group of panels.
    fn task(&self, task: usize, memory: &mut [f32]) {
        let (p, plan) = (self.p, self.plan);
        let (segment, group) = plan.cut.task(p, task);
        let (source, rest) = memory.split_at_mut(plan.source_len(p).next_multiple_of(16));
        let (line, late) = rest.split_at_mut(plan.line_len(p).next_multiple_of(16));
        let packed = PackedSource::new(p, plan, &segment);
        for pass in plan.passes(p) {
            if let Some(channels) = plan.chunk(p, &pass) {
                packed.fill(p, self.kernels, &segment, channels, self.source, source, line);
            }
            let source = &source[plan.in_chunk(p, &pass)..];
            for index in group.clone() {
                let panel = plan.panel(p, index);
                let range = packed_range(plan, &pass, panel, plan.lanes());
                let weights = if plan.packs_late() {
                    let late = &mut late[..range.len()];
                    pack::weights(p, &pass, panel, plan.lanes(), self.w, late);
                    &*late
                } else {
                    &self.packed[range]
                };
                self.panel(&segment, &pass, panel, &packed, source, weights);
            }
        }
    }

    /// One pass of all tiles of a segment in one panel.
    fn panel(
        &self,
        segment: &Segment,
        pass: &Pass,
        panel: Panel,
        packed: &PackedSource,
        source: &[f32],
        weights: &[f32],
    ) {
        let p = self.p;
        let kernels = self.kernels.sum[panel.vectors - 1];
        let width = segment.pixels.len();
        // Tiles of two rows where that makes fewer, larger ones: they read each weight less often.
        let tiles = width.div_ceil(kernels.len());
        let tiles_of_two = width.div_ceil((kernels.len() / 2).max(1));
        let pairs = tiles_of_two < 2 * tiles && kernels.len() > 1;
        let mut offsets = [0; PASS_TAPS];
        for (offset, tap) in offsets.iter_mut().zip(pass.taps.clone()) {
            *offset = packed.tap(p, tap);
        }
        let mut tile = SumTile {
            a: source.as_ptr(),
            a_half: 0,
            taps: offsets.as_ptr(),
            tap_count: pass.taps.len(),
            blocks: pass.blocks,
            block_len: packed.block_len,
            last: pass.channels.len() - pass.blocks.saturating_sub(1) * BLOCK,
            b: weights.as_ptr(),
            ahead: weights.as_ptr(),
            y: self.out.as_ptr(),
            y_step: p.out.pixel,
            y_half: 0,
            lanes: panel.columns - (panel.vectors - 1) * self.kernels.width,
            bias: match self.finish.bias {
                Some(bias) if pass.is_first => bias[panel.column..][..panel.columns].as_ptr(),
                _ => core::ptr::null(),
            },
            affine: match self.finish.affine {
                Some(affine) if pass.is_last => {
                    affine.map(|run| run[panel.column..][..panel.columns].as_ptr())
                }
                _ => [core::ptr::null(); 2],
            },
            add: !pass.is_first || self.finish.add,
            relu: self.finish.relu.filter(|_| pass.is_last),
        };
        for (i, image) in segment.images.clone().enumerate() {
            let mut row = 0;
            while row < segment.rows.len() {
                let pair = pairs && row + 1 < segment.rows.len();
                let a = i * packed.image_len + row * p.y.step * packed.row_len;
                let y = p.out.offset
                    + image * p.out.image
                    + (segment.rows.start + row) * p.out.row
                    + segment.pixels.start * p.out.pixel
                    + panel.column;
                let mut pixel = 0;
                let tiles = if pair { tiles_of_two } else { tiles };
                for t in 0..tiles {
                    let pixels = width / tiles + usize::from(t < width % tiles);
                    let half = if pair { pixels } else { pixels.div_ceil(2) };
                    let rows = if pair { 2 * pixels } else { pixels };
                    (tile.a_half, tile.y_half) = if pair {
                        (p.y.step * packed.row_len, p.out.row)
                    } else {
                        (half * BLOCK, half * p.out.pixel)
                    };
                    let y = y + pixel * p.out.pixel;
                    let last = if rows == 1 { 0 } else { tile.y_half + (rows - half - 1) * p.out.pixel };
                    debug_assert!(y + last + panel.columns <= self.out.len());
                    // SAFETY: the kernels fit the processor. `PackedSource::new` counted the pixels that the taps of
                    // this segment's outputs read; `weights` has the products of this pass; the outputs of a
                    // segment and panel lie inside of the output and are written by this task alone.
                    unsafe {
                        // Wrapping: sums over nothing have no source, and read none.
                        tile.a = source.as_ptr().wrapping_add(a + pixel * BLOCK);
                        tile.y = self.out.as_ptr().add(y);
                        kernels[rows - 1](&tile);
                    }
                    pixel += pixels;
                }
                row += 1 + usize::from(pair);
            }
        }
    }
}
