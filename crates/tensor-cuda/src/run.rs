//! Programs on the device: the operands of each op, and its kernels.

use crate::Cuda;
use crate::buffer::{Buffer, Ints};
use crate::dependencies::{Access, Region};
use crate::layer::Layer;
use crate::operand::Run;
use crate::ops::convolution::Weights;
use crate::ops::normalization::{Saved, Training};
use crate::place::Place;
use core::ops::Range;
use program::ops::{Reshape, Slice};
use program::{Arena, Executable, Memory, Op, Result, Step, StepArgs, TensorId, View, Write};

impl Cuda {
    /// See `Backend::run`.
    pub(crate) fn run_steps(
        &self,
        program: &Executable,
        steps: Range<usize>,
        args: &StepArgs,
        memory: Memory<'_, Buffer, Ints>,
    ) -> Result<()> {
        let Memory { activations, statistics, params, grads, averages, labels } = memory;
        let lens =
            [activations.len(), statistics.len(), params.len(), grads.len(), averages.len(), labels.len()];
        program.check_memory(args, lens)?;
        let arenas = Arenas { numbers: [activations, statistics, params, grads, averages], labels };
        for k in steps {
            let at = Operands { program, step: program.step(k), n: args.n, arenas: &arenas };
            self.op(|| {
                self.declare(at.accesses());
                self.run_step(at, args)
            })?;
        }
        Ok(())
    }

    fn run_step(&self, at: Operands, args: &StepArgs) -> Result<()> {
        let Operands { program, step, arenas, .. } = at;
        let write = if step.onto.is_some() { Write::Add } else { Write::Set };
        match &step.op {
            Op::Conv2dForward(op) => {
                self.op_forward(Layer::Conv(&op.conv), op.act, at.read(0), at.weights(2), at.write(0))
            }
            Op::Conv2dNormalized(op) => {
                let (x, weights, norm) = (at.read(0), at.weights(6), at.runs(2));
                self.op_conv2d_bn_act_fwd_infer(&op.conv, &op.bn, x, weights, norm, at.write(0))
            }
            Op::Conv2dInputGradient(op) => {
                self.op_input_gradient(Layer::Conv(&op.conv), at.read(0), at.run(1), at.write(0), write)
            }
            Op::Conv2dWeightGradient(op) => {
                self.op_weight_gradient(Layer::Conv(&op.conv), at.read(0), at.read(1), at.weight_grads())
            }
            Op::LinearForward(op) => {
                self.op_forward(Layer::Linear(&op.linear), op.act, at.read(0), at.weights(2), at.write(0))
            }
            Op::LinearInputGradient(op) => {
                self.op_input_gradient(Layer::Linear(&op.linear), at.read(0), at.run(1), at.write(0), write)
            }
            Op::LinearWeightGradient(op) => {
                self.op_weight_gradient(Layer::Linear(&op.linear), at.read(0), at.read(1), at.weight_grads())
            }
            Op::BatchNormTrain(op) => {
                self.op_bn_act_fwd_train(&op.bn, at.read(0), at.training(1), at.write(0))
            }
            Op::BatchNormInfer(op) => self.op_bn_act_fwd_infer(&op.bn, at.read(0), at.runs(1), at.write(0)),
            Op::BatchNormInferGradient(op) => {
                self.op_bn_infer_bwd(op, at.read(0), at.run(1), at.run(2), at.write(0))
            }
            Op::BatchNormRecompute(op) => self.op_bn_act_fwd_recompute(&op.bn, at.saved(), at.write(0)),
            Op::BatchNormMoments(_) => self.op_bn_statistics(at.read(0), at.result(0)),
            Op::SyncBatchNorm(op) => {
                self.op_bn_act_fwd_synchronized(&op.bn, at.read(0), at.run(1), at.training(2), at.write(0))
            }
            Op::BatchNormWeightGradient(op) => {
                self.op_bn_act_bwd_params(&op.bn, at.saved(), at.read(4), [at.result(0), at.result(1)])
            }
            Op::BatchNormInputGradient(op) => {
                let count = op.count(args, at.read(0).layout.shape);
                let (saved, dy) = (at.saved(), at.read(4));
                let c = saved.x.layout.shape.c;
                let grads = match op.shared {
                    true => [at.run(5).part(0, c), at.run(5).part(c, c)],
                    false => at.runs(5),
                };
                self.op_bn_act_bwd_data(&op.bn, saved, dy, grads, count, at.write(0), write)
            }
            Op::GroupNorm(op) => self.op_group_norm(op, at.read(0), at.runs(1), at.write(0)),
            Op::GroupNormGradient(op) => {
                let tensors = [at.read(0), at.read(3), at.write(0)];
                let gradients = [at.result(1), at.result(2)];
                self.op_group_norm_gradient(&op.norm, tensors, at.runs(1), gradients, write)
            }
            Op::Activate(op) => self.op_act_fwd(op.act, at.read(0), at.write(0)),
            Op::ActivationGradient(op) if program.is_in_place(step, 1) => {
                self.op_act_bwd_in_place(op.act, at.read(0), at.write(0))
            }
            Op::ActivationGradient(op) => self.op_act_bwd(op.act, at.read(0), at.read(1), at.write(0), write),
            Op::Add(op) => {
                let y = at.write(0);
                let in_place = [0, 1].into_iter().find(|&operand| program.is_in_place(step, operand));
                if in_place.is_none() {
                    self.op_copy(1.0, at.read(1), y, Write::Set)?;
                }
                self.op_add_act(op.act, at.read(1 - in_place.unwrap_or(1)), y)
            }
            Op::MaxPool(op) => self.op_maxpool_fwd(&op.pool, at.read(0), at.write(0)),
            Op::MaxPoolGradient(op) => {
                self.op_maxpool_bwd(&op.pool, at.read(0), at.read(1), at.read(2), at.write(0), write)
            }
            Op::AveragePool(op) => self.op_avgpool_fwd(&op.pool, at.read(0), at.write(0)),
            Op::AveragePoolGradient(op) => self.op_avgpool_bwd(&op.pool, at.read(0), at.write(0), write),
            Op::Dropout(op) => self.op_dropout(&op.mask(args), at.read(0), at.write(0), write),
            Op::Scale(op) => self.op_copy(op.factor, at.read(0), at.write(0), write),
            Op::Reshape(_) => {
                let (x, y) = (at.read(0), at.write(0));
                let [from, to] = Reshape::layouts(x.layout, y.layout);
                self.op_copy(1.0, View::new(x.data, from), View::new(y.data, to), write)
            }
            Op::Concat(_) => program.copied_parts(step, at.n).try_for_each(|(part, layout)| {
                self.op_copy(1.0, at.read(part), View::new(arenas.activations(), layout), Write::Set)
            }),
            Op::Slice(Slice { from, .. }) if program.is_inside(step, *from) => Ok(()),
            Op::Slice(Slice { from, channels }) => {
                let View { data, layout } = at.read(0);
                let x = View::new(data, layout.channels(*from..from + channels));
                self.op_copy(1.0, x, at.write(0), Write::Set)
            }
            Op::SliceGradient(op) => self.op_slice_gradient(*op, at.read(0), at.write(0), write),
            Op::ChannelShuffle(op) => self.op_channel_shuffle(*op, at.read(0), at.write(0), write),
            Op::Join(_) => {
                let (a, b, joined) = (at.run(0), at.run(1), at.result(0));
                self.copy_run(a, joined.part(0, a.at.len))?;
                self.copy_run(b, joined.part(a.at.len, b.at.len))
            }
            // The caller's.
            Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {
                Ok(())
            }
            Op::CrossEntropy(op) => {
                let dlogits = op.gradient.then(|| at.write(0));
                let metrics = at.result(usize::from(op.gradient));
                self.op_softmax_xent(&op.loss(args), at.read(0), arenas.labels, dlogits, metrics)
            }
        }
    }

    /// Copies f32 from one arena to another.
    fn copy_run(&self, from: Run, to: Run) -> Result<()> {
        self.op_copy(1.0, from.vector(), to.vector(), Write::Set)
    }
}

/// The memory of a program. Ops write through pointers, so all of it can be borrowed at once.
struct Arenas<'a> {
    /// By the place in [`Arena::ALL`]; labels come last, apart.
    numbers: [&'a Buffer; Arena::ALL.len() - 1],
    labels: &'a Ints,
}

impl<'a> Arenas<'a> {
    fn activations(&self) -> &'a Buffer {
        self.numbers[Arena::Activations as usize]
    }
}

/// The operands and results of a step, by their numbers.
#[derive(Clone, Copy)]
struct Operands<'a> {
    program: &'a Executable,
    step: &'a Step,
    n: usize,
    arenas: &'a Arenas<'a>,
}

impl<'a> Operands<'a> {
    /// A tensor of activations that the step reads.
    fn read(&self, operand: usize) -> View<'a, Buffer> {
        self.view(self.step.operands[operand])
    }

    /// A tensor of activations that the step writes.
    fn write(&self, result: usize) -> View<'a, Buffer> {
        self.view(self.step.results[result])
    }

    /// A run of f32 that the step reads.
    fn run(&self, operand: usize) -> Run<'a> {
        self.run_of(self.step.operands[operand])
    }

    /// Runs of f32 that the step reads, from operand `from` on.
    fn runs<const N: usize>(&self, from: usize) -> [Run<'a>; N] {
        core::array::from_fn(|k| self.run(from + k))
    }

    /// A run of f32 that the step writes.
    fn result(&self, result: usize) -> Run<'a> {
        self.run_of(self.step.results[result])
    }

    /// The weights of a convolution or a dense layer, and the bias if there is one: operand `bias`.
    fn weights(&self, bias: usize) -> Weights<'a> {
        Weights { w: self.run(1), b: self.step.operands.get(bias).map(|&bias| self.run_of(bias)) }
    }

    /// The gradients of weights, and of the bias if there is one.
    fn weight_grads(&self) -> Weights<'a> {
        Weights { w: self.result(0), b: self.step.results.get(1).map(|&b| self.run_of(b)) }
    }

    /// The operands of batch normalization in training, from its gamma on, and its results.
    fn training(&self, gamma: usize) -> Training<'a> {
        Training {
            affine: self.runs(gamma),
            bias: self.step.operands.get(gamma + 2).map(|&bias| self.run_of(bias)),
            saved: self.result(1),
            sums: self.result(2),
        }
    }

    /// The operands of its backward pass.
    fn saved(&self) -> Saved<'a> {
        Saved { x: self.read(0), affine: self.runs(1), saved: self.run(3) }
    }

    /// The memory that the step reads and writes, which decides its dependencies.
    fn accesses(self) -> impl Iterator<Item = Access> {
        let reads = self.step.reads().map(move |id| (self.region(id), false));
        reads.chain(self.step.results.iter().map(move |&id| (self.region(id), true)))
    }

    fn region(&self, id: TensorId) -> Region {
        match self.program.program().tensor(id).arena {
            Arena::Activations => {
                let View { data, layout } = self.view(id);
                let ptr = data.memory.ptr().offset(layout.offset * data.format.bytes());
                Region::tensor(
                    &Place { ptr, shape: layout.shape, stride: layout.stride },
                    data.format.bytes(),
                )
            }
            Arena::Labels => {
                Region::run(self.arenas.labels.memory.ptr(), self.arenas.labels.len() * size_of::<u32>())
            }
            _ => {
                let Run { data, at } = self.run_of(id);
                let bytes = data.format.bytes();
                Region::run(data.memory.ptr().offset(at.offset * bytes), at.len * bytes)
            }
        }
    }

    fn view(&self, id: TensorId) -> View<'a, Buffer> {
        View::new(self.arenas.activations(), self.program.layout(id, self.n))
    }

    fn run_of(&self, id: TensorId) -> Run<'a> {
        let arena = self.program.program().tensor(id).arena;
        Run::new(self.arenas.numbers[arena as usize], self.program.span(id))
    }
}
