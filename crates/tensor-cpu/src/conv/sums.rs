use super::kernels::{Kernels, SumTile};
use super::pack::{self, PackedSource};
use super::plan::{PASS_TAPS, Panel, Pass, Plan, Segment};
use super::problem::Problem;
use crate::Cpu;
use crate::threads::Shards;

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
    /// Whether to add to what the outputs held.
    pub add: bool,
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch_len(p: &Problem, kernels: &Kernels, threads: usize) -> usize {
    let plan = Plan::new(p, kernels);
    plan.weights_len(p).next_multiple_of(16) + threads * worker_len(p, &plan)
}

/// Elements of scratch memory for one thread: a packed segment, and a packed panel where tasks pack weights.
fn worker_len(p: &Problem, plan: &Plan) -> usize {
    let panel = if plan.packs_late() { plan.panel_len(p) } else { 0 };
    plan.source_len(p).next_multiple_of(16) + panel.next_multiple_of(16)
}

/// Computes all outputs of the problem.
pub(super) fn run(cpu: &Cpu, p: &Problem, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
    if p.columns == 0 || p.images * p.pixels() == 0 {
        return;
    }
    let kernels = Kernels::of(cpu.simd());
    let plan = Plan::new(p, kernels);
    let mut scratch = cpu.scratch(scratch_len(p, kernels, cpu.threads()));
    let (weights, workers) = scratch.split_at_mut(plan.weights_len(p).next_multiple_of(16));
    if !plan.packs_late() {
        pack_all(cpu, p, &plan, w, weights);
    }
    let (worker_len, workers) = (worker_len(p, &plan), Shards::new(workers));
    let job = Job { p, plan: &plan, kernels, source, w, packed: weights, finish, out: Shards::new(out) };
    cpu.pool().run_on(plan.segments() * plan.groups, &|thread, task| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };
        job.task(task, memory);
    });
}

/// Packs all weights: pass by pass, and in a pass panel by panel.
fn pack_all(cpu: &Cpu, p: &Problem, plan: &Plan, w: &[f32], to: &mut [f32]) {
    let passes = plan.passes(p).count();
    let to = Shards::new(to);
    cpu.pool().run(passes * plan.panels, &|task| {
        let Some(pass) = plan.passes(p).nth(task / plan.panels) else { return };
        let panel = plan.panel(p, task % plan.panels);
        // SAFETY: parts of different passes and panels do not overlap.
        let to = unsafe { to.part(packed_range(plan, &pass, panel, plan.lanes())) };
        pack::weights(p, &pass, panel, plan.lanes(), w, to);
    });
}

/// Where the packed weights of a pass and panel lie.
fn packed_range(plan: &Plan, pass: &Pass, panel: Panel, lanes: usize) -> core::ops::Range<usize> {
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
        let segment = plan.segment(p, task / plan.groups);
        let (source, late) = memory.split_at_mut(plan.source_len(p).next_multiple_of(16));
        let packed = PackedSource::new(p, plan, &segment);
        for pass in plan.passes(p) {
            if pass.taps.start == 0 {
                packed.fill(p, self.kernels, &segment, &pass, self.source, source);
            }
            for index in plan.group(task % plan.groups) {
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
        let tiles = segment.pixels.len().div_ceil(kernels.len());
        let (least, wide) = (segment.pixels.len() / tiles, segment.pixels.len() % tiles);
        let mut offsets = [0; PASS_TAPS];
        for (offset, tap) in offsets.iter_mut().zip(pass.taps.clone()) {
            *offset = packed.tap(p, tap);
        }
        let first = pass.before == 0;
        let mut tile = SumTile {
            a: source.as_ptr(),
            taps: offsets.as_ptr(),
            tap_count: pass.taps.len(),
            blocks: pass.blocks,
            block_len: packed.block_len,
            last: pass.channels.len() - pass.blocks.saturating_sub(1) * super::kernels::BLOCK,
            b: weights.as_ptr(),
            y: self.out.as_ptr(),
            y_step: p.out.pixel,
            lanes: panel.columns - (panel.vectors - 1) * self.kernels.width,
            bias: match self.finish.bias {
                Some(bias) if first => bias[panel.column..][..panel.columns].as_ptr(),
                _ => core::ptr::null(),
            },
            add: !first || self.finish.add,
            relu: pass.is_last && self.finish.relu,
        };
        for (i, image) in segment.images.clone().enumerate() {
            for (j, row) in segment.rows.clone().enumerate() {
                let a = i * packed.image_len + j * p.y.step * packed.row_len;
                let y = p.out.offset + image * p.out.image + row * p.out.row + panel.column;
                let mut pixel = 0;
                for t in 0..tiles {
                    let rows = least + usize::from(t < wide);
                    let y = y + (segment.pixels.start + pixel) * p.out.pixel;
                    debug_assert!(y + (rows - 1) * p.out.pixel + panel.columns <= self.out.len());
                    // SAFETY: the kernels fit the processor. `PackedSource::new` counted the pixels that the taps of
                    // this segment's outputs read; `weights` has the products of this pass; the outputs of a
                    // segment and panel lie inside of the output and are written by this task alone.
                    unsafe {
                        tile.a = source.as_ptr().add(a + pixel * super::kernels::BLOCK);
                        tile.y = self.out.as_ptr().add(y);
                        kernels[rows - 1](&tile);
                    }
                    pixel += rows;
                }
            }
        }
    }
}
