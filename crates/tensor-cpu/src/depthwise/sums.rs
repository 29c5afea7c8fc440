use super::kernels::{BLOCK, Kernels, Line, Sums};
use super::pack::{self, Place};
use super::plan::{LINES, Plan, portion};
use crate::Cpu;
use crate::element::{Element, Format};
use crate::pointwise::activate;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Activation, View, ViewMut, Write};

/// What is done to the sums before they are stored.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    /// Numbers of each channel to multiply with then, and to add.
    pub affine: Option<[&'a [f32]; 2]>,
    pub act: Activation,
    pub mode: Write,
}

/// Elements of scratch memory of a thread: its ring, its weights, sums of some lines.
fn parts(plan: &Plan) -> [usize; 3] {
    [plan.blocks * plan.ring_len(), plan.blocks * plan.weights_len(), plan.lines_len()]
}

pub(super) fn scratch_len(cpu: &Cpu, plan: &Plan) -> usize {
    cpu.pool().count() * parts(plan).iter().sum::<usize>()
}

/// The sums over taps for every output.
pub(super) fn run<E: Element>(
    cpu: &Cpu,
    plan: &Plan,
    x: View<[E]>,
    w: &[f32],
    finish: Finish,
    y: ViewMut<[E]>,
) {
    if y.layout.shape.is_empty() {
        return;
    }
    let mut scratch = cpu.scratch(scratch_len(cpu, plan));
    let (memory, len) = (Shards::new(&mut scratch), parts(plan).iter().sum::<usize>());
    let of_sample = plan.segments * plan.groups;
    let out = Shards::new(y.data);
    cpu.pool().run_on(y.layout.shape.n * of_sample, &|thread, task| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { memory.part(thread * len..(thread + 1) * len) };
        let (ring, memory) = memory.split_at_mut(parts(plan)[0]);
        let (weights, lines) = memory.split_at_mut(parts(plan)[1]);
        let blocks = plan.group(task % plan.groups);
        pack::pack_weights::<E>(plan, w, blocks.clone(), weights);
        let rows = portion(plan.out.shape.h, plan.segments, task % of_sample / plan.groups);
        let task = Task { cpu, plan, weights, finish, sample: task / of_sample, blocks, out };
        task.run(x.data, rows, ring, lines);
    });
}

/// The outputs of some rows of a sample and some blocks of channels.
struct Task<'a, E> {
    cpu: &'a Cpu,
    plan: &'a Plan,
    weights: &'a [f32],
    finish: Finish<'a>,
    sample: usize,
    blocks: Range<usize>,
    out: Shards<'a, E>,
}

impl<E: Element> Task<'_, E> {
    fn run(&self, x: &[E], rows: Range<usize>, ring: &mut [f32], memory: &mut [f32]) {
        let plan = self.plan;
        let mut packed = 0;
        for row in rows.clone().step_by(plan.at_once) {
            let group = row..(row + plan.at_once).min(rows.end);
            let under = plan.under(group.clone());
            for row in under.start.max(packed)..under.end {
                pack::pack_row(self.cpu.simd(), plan, x, self.sample, row, self.blocks.clone(), ring);
            }
            packed = packed.max(under.end);
            let (mut lines, mut count) = ([Line::default(); LINES], 0);
            for (row, phase) in
                group.flat_map(|row| (0..plan.columns.phases()).map(move |phase| (row, phase)))
            {
                lines[count] = plan.line(row, phase);
                lines[count].out = plan.out_at(self.sample, row, phase);
                count += 1;
                if count == LINES {
                    self.lines(&mut lines, ring, memory);
                    count = 0;
                }
            }
            self.lines(&mut lines[..count], ring, memory);
        }
    }

    /// The outputs of some lines.
    fn lines(&self, lines: &mut [Line], ring: &[f32], memory: &mut [f32]) {
        let (plan, kernels) = (self.plan, Kernels::of(self.cpu.simd()));
        let Finish { bias, affine, act, mode } = self.finish;
        let is_direct = E::FORMAT == Format::F32 && matches!(act, Activation::None | Activation::Relu);
        let out_step = plan.columns.phases() * plan.out.stride;
        let places: [usize; LINES] = core::array::from_fn(|k| lines.get(k).map_or(0, |line| line.out));
        if !is_direct {
            let mut at = 0;
            for line in lines.iter_mut() {
                line.out = at;
                at += line.count * BLOCK;
            }
        }
        for (k, block) in self.blocks.clone().enumerate() {
            let (channel, lanes) = (block * BLOCK, plan.lanes(block));
            let run = |run: &[f32]| run[channel..][..lanes].as_ptr();
            let ring = &ring[k * plan.ring_len()..][..plan.ring_len()];
            let weights = &self.weights[k * plan.weights_len()..][..plan.weights_len()];
            let sums = Sums {
                lines,
                ring: plan.ring(ring.as_ptr()),
                step: plan.step(),
                w: weights.as_ptr(),
                w_plane: plan.taps() * BLOCK,
                out: if is_direct {
                    self.out.as_ptr().cast::<f32>().wrapping_add(channel)
                } else {
                    memory.as_mut_ptr()
                },
                out_step: if is_direct { out_step } else { BLOCK },
                lanes,
                bias: bias.map_or(core::ptr::null(), run),
                add: is_direct && mode == Write::Add,
                affine: affine.map_or([core::ptr::null(); 2], |affine| affine.map(run)),
                relu: act == Activation::Relu,
            };
            // SAFETY: the kernels fit the processor. `Plan` has counted the rows and columns that the lines read, all of
            // which are packed; the outputs lie inside of their tensor, whose layout fits, or in `memory`, and no other
            // task has them. Only numbers of f32 are written as such.
            unsafe { (kernels.sums)(&sums) };
            if is_direct {
                continue;
            }
            for (line, place) in lines.iter().zip(places) {
                let sums = &mut memory[line.out..][..line.count * BLOCK];
                activate(self.cpu.simd(), act, sums);
                let place = Place { tensor: self.out, first: place + channel, step: out_step, lanes };
                pack::put_line(self.cpu.simd(), sums, place, mode);
            }
        }
    }
}
