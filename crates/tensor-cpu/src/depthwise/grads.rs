use super::kernels::{BLOCK, Grads, Kernels, Line};
use super::pack;
use super::plan::{LINES, Plan, portion};
use crate::Cpu;
use crate::element::{Element, Format};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Shape, View};

/// Parts of the batch that are summed by themselves, at most, and elements of their sums together.
const PARTS: usize = 16;
const PARTIALS: usize = 1 << 20;

/// Elements of scratch memory of a thread: its ring, its sums with those of a bias, gradients of some lines.
fn lens(plan: &Plan) -> [usize; 3] {
    [plan.blocks * plan.ring_len(), plan.blocks * sums_len(plan), plan.lines_len()]
}

/// Elements of a block's sums.
fn sums_len(plan: &Plan) -> usize {
    (plan.taps() + 1) * BLOCK
}

/// Elements of all sums: the weights' and the bias'.
fn all_len(plan: &Plan) -> usize {
    (plan.taps() + 1) * plan.channels
}

/// How many parts the rows of all samples are cut into.
fn parts(plan: &Plan) -> usize {
    let Shape { n, h, .. } = plan.out.shape;
    (PARTIALS / all_len(plan).max(1)).clamp(1, PARTS).min(n * h).max(1)
}

pub(super) fn scratch_len(cpu: &Cpu, plan: &Plan) -> usize {
    PARTS * all_len(plan) + cpu.pool().count() * lens(plan).iter().sum::<usize>()
}

/// The gradients of the weights and, unless it is empty, of the bias: sums over all pixels.
pub(super) fn run<E: Element>(
    cpu: &Cpu,
    plan: &Plan,
    x: View<[E]>,
    dy: View<[E]>,
    dw: &mut [f32],
    db: &mut [f32],
) {
    let (all, parts, len) = (all_len(plan), parts(plan), lens(plan).iter().sum::<usize>());
    let mut scratch = cpu.scratch(scratch_len(cpu, plan));
    let (partials, memory) = scratch.split_at_mut(parts * all);
    let (shards, memory) = (Shards::new(partials), Shards::new(memory));
    let rows = plan.out.shape.n * plan.out.shape.h;
    cpu.pool().run_on(parts * plan.groups, &|thread, task| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { memory.part(thread * len..(thread + 1) * len) };
        let (ring, memory) = memory.split_at_mut(lens(plan)[0]);
        let (sums, lines) = memory.split_at_mut(lens(plan)[1]);
        let (part, blocks) = (task / plan.groups, plan.group(task % plan.groups));
        let task = Task { cpu, plan, blocks, x: x.data, dy: dy.data, bias: !db.is_empty() };
        sums.fill(0.0);
        task.run(portion(rows, parts, part), ring, sums, lines);
        for (k, sums) in sums.chunks_exact(BLOCK).enumerate() {
            let (block, tap) = (task.blocks.start + k / (plan.taps() + 1), k % (plan.taps() + 1));
            if block < task.blocks.end {
                let (first, lanes) = (part * all + tap * plan.channels + block * BLOCK, plan.lanes(block));
                // SAFETY: each task has separate blocks of a part.
                unsafe { shards.part(first..first + lanes) }.copy_from_slice(&sums[..lanes]);
            }
        }
    });
    add_up(cpu, partials, all, 0, dw);
    add_up(cpu, partials, all, dw.len(), db);
}

/// Adds the parts' sums in their order: of each `pitch` elements those from `at` on.
fn add_up(cpu: &Cpu, partials: &[f32], pitch: usize, at: usize, sums: &mut [f32]) {
    const RUN: usize = 2048;
    let len = sums.len();
    let sums = Shards::new(sums);
    cpu.pool().run(len.div_ceil(RUN), &|task| {
        let range = task * RUN..((task + 1) * RUN).min(len);
        // SAFETY: each run belongs to one task.
        let sums = unsafe { sums.part(range.clone()) };
        crate::elementwise::add_up(partials, pitch, at + range.start, sums);
    });
}

/// The sums of some rows of the batch and some blocks of channels.
struct Task<'a, E> {
    cpu: &'a Cpu,
    plan: &'a Plan,
    blocks: Range<usize>,
    x: &'a [E],
    dy: &'a [E],
    bias: bool,
}

impl<E: Element> Task<'_, E> {
    /// Rows are counted through all samples.
    fn run(&self, rows: Range<usize>, ring: &mut [f32], sums: &mut [f32], memory: &mut [f32]) {
        let (plan, height) = (self.plan, self.plan.out.shape.h);
        let mut start = rows.start;
        while start < rows.end {
            let (sample, first) = (start / height, start % height);
            let end = height.min(first + rows.end - start);
            let mut packed = 0;
            for row in (first..end).step_by(plan.at_once) {
                let group = row..(row + plan.at_once).min(end);
                let under = plan.under(group.clone());
                for row in under.start.max(packed)..under.end {
                    pack::pack_row(self.cpu.simd(), plan, self.x, sample, row, self.blocks.clone(), ring);
                }
                packed = packed.max(under.end);
                let (mut lines, mut count) = ([Line::default(); LINES], 0);
                for row in group {
                    lines[count] = plan.line(row, 0);
                    lines[count].out = plan.out_at(sample, row, 0);
                    count += 1;
                }
                self.lines(&mut lines[..count], ring, sums, memory);
            }
            start += end - first;
        }
    }

    fn lines(&self, lines: &mut [Line], ring: &[f32], sums: &mut [f32], memory: &mut [f32]) {
        let (plan, kernels) = (self.plan, Kernels::of(self.cpu.simd()));
        let places: [usize; LINES] = core::array::from_fn(|k| lines.get(k).map_or(0, |line| line.out));
        let count = plan.out.shape.w;
        for (k, block) in self.blocks.clone().enumerate() {
            let lanes = plan.lanes(block);
            let is_direct = E::FORMAT == Format::F32 && lanes.is_multiple_of(kernels.width);
            for (at, (line, place)) in lines.iter_mut().zip(places).enumerate() {
                line.out = if is_direct { place } else { at * count * BLOCK };
                if !is_direct {
                    let to = &mut memory[line.out..][..count * BLOCK];
                    pack::take_line(
                        self.cpu.simd(),
                        &self.dy[place + block * BLOCK..],
                        lanes,
                        plan.out.stride,
                        to,
                    );
                }
            }
            let sums = &mut sums[k * sums_len(plan)..][..sums_len(plan)];
            let bias = sums[plan.taps() * BLOCK..].as_mut_ptr();
            let ring = &ring[k * plan.ring_len()..][..plan.ring_len()];
            let grads = Grads {
                lines,
                ring: plan.ring(ring.as_ptr()),
                step: plan.step(),
                dy: if is_direct {
                    self.dy.as_ptr().cast::<f32>().wrapping_add(block * BLOCK)
                } else {
                    memory.as_ptr()
                },
                dy_step: if is_direct { plan.out.stride } else { BLOCK },
                lanes,
                sums: sums.as_mut_ptr(),
                bias: if self.bias { bias } else { core::ptr::null_mut() },
            };
            // SAFETY: the kernels fit the processor. `Plan` has counted the rows and columns that the lines read, all of
            // which are packed; `sums` has room for all taps, and `dy` or `memory` whole vectors of every pixel.
            // Only numbers of f32 are read as such.
            unsafe { (kernels.grads)(&grads) };
        }
    }
}
