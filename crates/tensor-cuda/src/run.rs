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
use towers_program::ops::{Reshape, Spread};
use towers_program::{Arena, Executable, Memory, Op, Result, Step, StepArgs, TensorId, View, Write};

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
                let (of, to) = op.bind(step)?;
                let weights = at.weights(of.w, of.b);
                self.op_forward(Layer::Conv(&op.conv), op.act, at.read(of.x), weights, at.write(to.y))
            }
            Op::Conv2dNormalized(op) => {
                let (of, to) = op.bind(step)?;
                let norm = [of.gamma, of.beta, of.mean, of.var].map(|id| at.run(id));
                let (x, weights) = (at.read(of.x), at.weights(of.w, of.b));
                self.op_conv2d_bn_act_fwd_infer(&op.conv, &op.bn, x, weights, norm, at.write(to.y))
            }
            Op::Conv2dInputGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (dy, w) = (at.read(of.dy), at.run(of.w));
                self.op_input_gradient(Layer::Conv(&op.conv), dy, w, at.write(to.y), write)
            }
            Op::Conv2dWeightGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, dy) = (at.read(of.x), at.read(of.dy));
                self.op_weight_gradient(Layer::Conv(&op.conv), x, dy, at.weights(to.dw, to.db))
            }
            Op::DepthwiseForward(op) => {
                let (of, to) = op.bind(step)?;
                let weights = at.weights(of.w, of.b);
                self.op_depthwise(&op.conv, op.act, at.read(of.x), weights, at.write(to.y))
            }
            Op::DepthwiseNormalized(op) => {
                let (of, to) = op.bind(step)?;
                let norm = [of.gamma, of.beta, of.mean, of.var].map(|id| at.run(id));
                let (x, weights) = (at.read(of.x), at.weights(of.w, of.b));
                self.op_depthwise_normalized(&op.conv, &op.bn, x, weights, norm, at.write(to.y))
            }
            Op::DepthwiseInputGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (dy, w) = (at.read(of.dy), at.run(of.w));
                self.op_depthwise_input_gradient(&op.conv, dy, w, at.write(to.y), write)
            }
            Op::DepthwiseWeightGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, dy) = (at.read(of.x), at.read(of.dy));
                self.op_depthwise_weight_gradient(&op.conv, x, dy, at.weights(to.dw, to.db))
            }
            Op::LinearForward(op) => {
                let (of, to) = op.bind(step)?;
                let weights = at.weights(of.w, of.b);
                self.op_forward(Layer::Linear(&op.linear), op.act, at.read(of.x), weights, at.write(to.y))
            }
            Op::LinearInputGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (dy, w) = (at.read(of.dy), at.run(of.w));
                self.op_input_gradient(Layer::Linear(&op.linear), dy, w, at.write(to.y), write)
            }
            Op::LinearWeightGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, dy) = (at.read(of.x), at.read(of.dy));
                self.op_weight_gradient(Layer::Linear(&op.linear), x, dy, at.weights(to.dw, to.db))
            }
            Op::BatchNormTrain(op) => {
                let (of, to) = op.bind(step)?;
                let training = at.training([of.gamma, of.beta], of.bias, [to.saved, to.sums]);
                self.op_bn_act_fwd_train(&op.bn, at.read(of.x), training, at.write(to.y))
            }
            Op::BatchNormInfer(op) => {
                let (of, to) = op.bind(step)?;
                let norm = [of.gamma, of.beta, of.mean, of.var].map(|id| at.run(id));
                self.op_bn_act_fwd_infer(&op.bn, at.read(of.x), norm, at.write(to.y))
            }
            Op::BatchNormInferGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (dy, gamma, var) = (at.read(of.dy), at.run(of.gamma), at.run(of.var));
                self.op_bn_infer_bwd(op, dy, gamma, var, at.write(to.y))
            }
            Op::BatchNormRecompute(op) => {
                let (of, to) = op.bind(step)?;
                let saved = at.saved(of.x, [of.gamma, of.beta], of.saved);
                self.op_bn_act_fwd_recompute(&op.bn, saved, at.write(to.y))
            }
            Op::BatchNormMoments(op) => {
                let (of, to) = op.bind(step)?;
                self.op_bn_statistics(at.read(of.x), at.run(to.stats))
            }
            Op::SyncBatchNorm(op) => {
                let (of, to) = op.bind(step)?;
                let training = at.training([of.gamma, of.beta], of.bias, [to.saved, to.sums]);
                let (x, stats) = (at.read(of.x), at.run(of.stats));
                self.op_bn_act_fwd_synchronized(&op.bn, x, stats, training, at.write(to.y))
            }
            Op::BatchNormWeightGradient(op) => {
                let (of, to) = op.bind(step)?;
                let saved = at.saved(of.x, [of.gamma, of.beta], of.saved);
                let gradients = [to.dgamma, to.dbeta].map(|id| at.run(id));
                self.op_bn_act_bwd_params(&op.bn, saved, at.read(of.dy), gradients)
            }
            Op::BatchNormInputGradient(op) => {
                let (of, to) = op.bind(step)?;
                let saved = at.saved(of.x, [of.gamma, of.beta], of.saved);
                let (shape, sums) = (saved.x.layout.shape, at.run(of.sums));
                let grads = match of.dbeta {
                    None => [sums.part(0, shape.c), sums.part(shape.c, shape.c)],
                    Some(dbeta) => [sums, at.run(dbeta)],
                };
                let (count, dy) = (op.count(args, shape), at.read(of.dy));
                self.op_bn_act_bwd_data(&op.bn, saved, dy, grads, count, at.write(to.y), write)
            }
            Op::GroupNorm(op) => {
                let (of, to) = op.bind(step)?;
                let affine = [of.gamma, of.beta].map(|id| at.run(id));
                self.op_group_norm(op, at.read(of.x), affine, at.write(to.y))
            }
            Op::GroupNormGradient(op) => {
                let (of, to) = op.bind(step)?;
                let tensors = [at.read(of.x), at.read(of.dy), at.write(to.dx)];
                let affine = [of.gamma, of.beta].map(|id| at.run(id));
                let gradients = [to.dgamma, to.dbeta].map(|id| at.run(id));
                self.op_group_norm_gradient(&op.norm, tensors, affine, gradients, write)
            }
            Op::LayerNorm(op) => {
                let (of, to) = op.bind(step)?;
                let affine = [of.gamma, of.beta].map(|id| at.run(id));
                self.op_layer_norm(op, at.read(of.x), affine, at.write(to.y))
            }
            Op::LayerNormGradient(op) => {
                let (of, to) = op.bind(step)?;
                let tensors = [at.read(of.x), at.read(of.dy), at.write(to.dx)];
                let gradients = [to.dgamma, to.dbeta].map(|id| at.run(id));
                self.op_layer_norm_gradient(&op.norm, tensors, at.run(of.gamma), gradients, write)
            }
            Op::LocalResponseNorm(op) => {
                let (of, to) = op.bind(step)?;
                self.op_local_response_norm(op, at.read(of.x), at.write(to.y))
            }
            Op::LocalResponseNormGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, dy) = (at.read(of.x), at.read(of.dy));
                self.op_local_response_norm_gradient(&op.norm, x, dy, at.write(to.y), write)
            }
            Op::Activate(op) => {
                let (of, to) = op.bind(step)?;
                self.op_act_fwd(op.act, at.read(of.x), at.write(to.y))
            }
            Op::ActivationGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (y, dx) = (at.read(of.of), at.write(to.y));
                if program.is_in_place(step, of.dy) {
                    self.op_act_bwd_in_place(op.act, y, dx)
                } else {
                    self.op_act_bwd(op.act, y, at.read(of.dy), dx, write)
                }
            }
            Op::PRelu(op) => {
                let (of, to) = op.bind(step)?;
                self.op_prelu(at.read(of.x), at.run(of.slopes), at.write(to.y))
            }
            Op::PReluInputGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, slopes, dy) = (at.read(of.x), at.run(of.slopes), at.read(of.dy));
                self.op_prelu_input_gradient(x, slopes, dy, at.write(to.y), write)
            }
            Op::PReluSlopeGradient(op) => {
                let (of, to) = op.bind(step)?;
                self.op_prelu_slope_gradient(at.read(of.x), at.read(of.dy), at.run(to.dslopes))
            }
            Op::Add(op) => {
                let (of, to) = op.bind(step)?;
                let y = at.write(to.y);
                let other = if program.is_in_place(step, of.a) { of.b } else { of.a };
                if other == of.a && !program.is_in_place(step, of.b) {
                    self.op_copy(1.0, at.read(of.b), y, Write::Set)?;
                }
                self.op_add_act(op.act, at.read(other), y)
            }
            Op::Merge(op) => {
                let (of, to) = op.bind(step)?;
                let (x, z) = (at.read(of.x), at.read(of.z));
                let spread = Spread::of("merge", x.layout.shape, z.layout.shape)?;
                self.op_merge((op.how, spread), x, z, at.write(to.y), write)
            }
            Op::MergeGradient(op) => {
                let (of, to) = op.bind(step)?;
                let x = of.x.map(|x| at.read(x));
                self.op_merge_gradient(op.spread, at.read(of.dy), x, at.write(to.y), write)
            }
            Op::MaxPool(op) => {
                let (of, to) = op.bind(step)?;
                self.op_maxpool_fwd(&op.pool, at.read(of.x), at.write(to.y))
            }
            Op::MaxPoolGradient(op) => {
                let (of, to) = op.bind(step)?;
                let (x, y, dy) = (at.read(of.x), at.read(of.y), at.read(of.dy));
                self.op_maxpool_bwd(&op.pool, x, y, dy, at.write(to.y), write)
            }
            Op::AveragePool(op) => {
                let (of, to) = op.bind(step)?;
                self.op_avgpool_fwd(&op.pool, at.read(of.x), at.write(to.y))
            }
            Op::AveragePoolGradient(op) => {
                let (of, to) = op.bind(step)?;
                self.op_avgpool_bwd(&op.pool, at.read(of.dy), at.write(to.y), write)
            }
            Op::ZeroPad(op) => {
                let (of, to) = op.bind(step)?;
                self.op_zero_pad(op, at.read(of.x), at.write(to.y), write)
            }
            Op::Upsample(op) => {
                let (of, to) = op.bind(step)?;
                self.op_upsample(op, at.read(of.x), at.write(to.y))
            }
            Op::UpsampleGradient(op) => {
                let (of, to) = op.bind(step)?;
                self.op_upsample_gradient(&op.upsample, at.read(of.dy), at.write(to.y), write)
            }
            Op::Dropout(op) => {
                let (of, to) = op.bind(step)?;
                self.op_dropout(&op.mask(args), at.read(of.x), at.write(to.y), write)
            }
            Op::Scale(op) => {
                let (of, to) = op.bind(step)?;
                self.op_copy(op.factor, at.read(of.x), at.write(to.y), write)
            }
            Op::Reshape(op) => {
                let (of, to) = op.bind(step)?;
                let (x, y) = (at.read(of.x), at.write(to.y));
                let [from, to] = Reshape::layouts(x.layout, y.layout);
                self.op_copy(1.0, View::new(x.data, from), View::new(y.data, to), write)
            }
            Op::Concat(_) => program.copied_parts(step, at.n).try_for_each(|(part, layout)| {
                let part = at.read(step.operands[part]);
                self.op_copy(1.0, part, View::new(arenas.activations(), layout), Write::Set)
            }),
            Op::Slice(op) if program.is_inside(step, op.from) => Ok(()),
            Op::Slice(op) => {
                let (of, to) = op.bind(step)?;
                let View { data, layout } = at.read(of.x);
                let x = View::new(data, layout.channels(op.from..op.from + op.channels));
                self.op_copy(1.0, x, at.write(to.y), Write::Set)
            }
            Op::SliceGradient(op) => {
                let (of, to) = op.bind(step)?;
                self.op_slice_gradient(*op, at.read(of.dy), at.write(to.y), write)
            }
            Op::ChannelShuffle(op) => {
                let (of, to) = op.bind(step)?;
                self.op_channel_shuffle(*op, at.read(of.x), at.write(to.y), write)
            }
            Op::Join(op) => {
                let (of, to) = op.bind(step)?;
                let (a, b, joined) = (at.run(of.a), at.run(of.b), at.run(to.joined));
                self.copy_run(a, joined.part(0, a.at.len))?;
                self.copy_run(b, joined.part(a.at.len, b.at.len))
            }
            // The caller's.
            Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {
                Ok(())
            }
            Op::CrossEntropy(op) => {
                let (logits, dlogits, metrics) = op.bind(step)?;
                let dlogits = dlogits.map(|dlogits| at.write(dlogits));
                self.op_cross_entropy(
                    &op.loss(args),
                    at.read(logits),
                    arenas.labels,
                    dlogits,
                    at.run(metrics),
                )
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

/// The operands and results of a step, in memory.
#[derive(Clone, Copy)]
struct Operands<'a> {
    program: &'a Executable,
    step: &'a Step,
    n: usize,
    arenas: &'a Arenas<'a>,
}

impl<'a> Operands<'a> {
    /// A tensor of activations that the step reads.
    fn read(&self, operand: TensorId) -> View<'a, Buffer> {
        View::new(self.arenas.activations(), self.program.layout(operand, self.n))
    }

    /// A tensor of activations that the step writes.
    fn write(&self, result: TensorId) -> View<'a, Buffer> {
        self.read(result)
    }

    /// A run of f32.
    fn run(&self, id: TensorId) -> Run<'a> {
        let arena = self.program.program().tensor(id).arena;
        Run::new(self.arenas.numbers[arena as usize], self.program.span(id))
    }

    /// The weights of a convolution or a dense layer, and the bias if there is one; or their gradients.
    fn weights(&self, w: TensorId, b: Option<TensorId>) -> Weights<'a> {
        Weights { w: self.run(w), b: b.map(|b| self.run(b)) }
    }

    /// What batch normalization reads in training, and its results.
    fn training(
        &self,
        affine: [TensorId; 2],
        bias: Option<TensorId>,
        [saved, sums]: [TensorId; 2],
    ) -> Training<'a> {
        Training {
            affine: affine.map(|id| self.run(id)),
            bias: bias.map(|bias| self.run(bias)),
            saved: self.run(saved),
            sums: self.run(sums),
        }
    }

    /// The operands of its backward pass.
    fn saved(&self, x: TensorId, affine: [TensorId; 2], saved: TensorId) -> Saved<'a> {
        Saved { x: self.read(x), affine: affine.map(|id| self.run(id)), saved: self.run(saved) }
    }

    /// The memory that the step reads and writes, which decides its dependencies.
    fn accesses(self) -> impl Iterator<Item = Access> {
        let reads = self.step.reads().map(move |id| (self.region(id), false));
        reads.chain(self.step.results.iter().map(move |&id| (self.region(id), true)))
    }

    fn region(&self, id: TensorId) -> Region {
        match self.program.program().tensor(id).arena {
            Arena::Activations => {
                let View { data, layout } = self.read(id);
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
                let Run { data, at } = self.run(id);
                let bytes = data.format.bytes();
                Region::run(data.memory.ptr().offset(at.offset * bytes), at.len * bytes)
            }
        }
    }
}
