//! Programs on the CPU: each op in front of its kernel.

use crate::conv::Convolved;
use crate::element::Element;
use crate::memory::{Arenas, Operands};
use crate::norm_operands::{Infer, Saved, Train};
use crate::normalization::Groups;
use crate::{
    Buffer, Cpu, activation, channels, conv, depthwise, dropout, elementwise, layer_norm, linear,
    local_response_norm, merge, normalization, pooling, prelu, softmax, upsample, zero_pad,
};
use core::ops::Range;
use towers_program::ops::{Reshape, Spread};
use towers_program::{
    Executable, Labels, Memory, Op, Result, Step, StepArgs, TensorId, View, ViewMut, Write,
};

/// See `Backend::run`.
pub(crate) fn run<E: Convolved>(
    cpu: &Cpu,
    program: &Executable,
    steps: Range<usize>,
    args: &StepArgs,
    memory: Memory<'_, Buffer, Vec<u32>>,
) -> Result<()> {
    let mut arenas = Arenas::<E>::new(program, args, memory)?;
    for k in steps {
        let step = program.step(k);
        run_step(cpu, program, step, args, arenas.of(step))?;
    }
    Ok(())
}

fn run_step<E: Convolved>(
    cpu: &Cpu,
    program: &Executable,
    step: &Step,
    args: &StepArgs,
    mut at: Operands<E>,
) -> Result<()> {
    let write = if step.onto.is_some() { Write::Add } else { Write::Set };
    match &step.op {
        Op::Conv2dForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x), at.run(of.w), of.b.map(|b| at.run(b)));
            conv::forward(cpu, &op.conv, op.act, x, w, b, at.write(to.y));
        }
        Op::Conv2dNormalized(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x), at.run(of.w), of.b.map(|b| at.run(b)));
            let norm = infer(&at, [of.gamma, of.beta, of.mean, of.var]);
            conv::forward_normalized(cpu, &op.conv, &op.bn, x, w, b, norm, at.write(to.y));
        }
        Op::Conv2dInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            conv::backward_data(cpu, &op.conv, at.read(of.dy), at.run(of.w), at.write(to.y), write);
        }
        Op::Conv2dWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x), at.read(of.dy));
            conv::backward_filter(cpu, &op.conv, x, dy, at.run_mut(to.dw));
            elementwise::column_sums(cpu, dy, at.optional_run_mut(to.db));
        }
        Op::DepthwiseForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x), at.run(of.w), of.b.map(|b| at.run(b)));
            depthwise::forward(cpu, &op.conv, op.act, x, w, b, at.write(to.y));
        }
        Op::DepthwiseNormalized(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x), at.run(of.w), of.b.map(|b| at.run(b)));
            let norm = infer(&at, [of.gamma, of.beta, of.mean, of.var]);
            depthwise::forward_normalized(cpu, &op.conv, &op.bn, x, w, b, norm, at.write(to.y));
        }
        Op::DepthwiseInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            depthwise::backward_data(cpu, &op.conv, at.read(of.dy), at.run(of.w), at.write(to.y), write);
        }
        Op::DepthwiseWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, dw) = (at.read(of.x), at.read(of.dy), at.run_mut(to.dw));
            depthwise::backward_filter(cpu, &op.conv, x, dy, dw, at.optional_run_mut(to.db));
        }
        Op::LinearForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x), at.run(of.w), of.b.map(|b| at.run(b)));
            linear::forward(cpu, &op.linear, op.act, x, w, b, at.write(to.y));
        }
        Op::LinearInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            linear::backward_data(cpu, &op.linear, at.read(of.dy), at.run(of.w), at.write(to.y), write);
        }
        Op::LinearWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x), at.read(of.dy));
            linear::backward_filter(cpu, &op.linear, x, dy, at.run_mut(to.dw));
            elementwise::column_sums(cpu, dy, at.optional_run_mut(to.db));
        }
        Op::BatchNormTrain(op) => {
            let (of, to) = op.bind(step)?;
            let runs = train(&mut at, [of.gamma, of.beta], of.bias, [to.saved, to.sums]);
            normalization::forward_train(cpu, &op.bn, at.read(of.x), at.write(to.y), runs);
        }
        Op::BatchNormInfer(op) => {
            let (of, to) = op.bind(step)?;
            let norm = infer(&at, [of.gamma, of.beta, of.mean, of.var]);
            normalization::forward_infer(cpu, &op.bn, at.read(of.x), norm, at.write(to.y));
        }
        Op::BatchNormInferGradient(op) => {
            let (of, to) = op.bind(step)?;
            let runs = [at.run(of.gamma), at.run(of.var)];
            normalization::infer_backward(cpu, op, at.read(of.dy), runs, at.write(to.y));
        }
        Op::BatchNormRecompute(op) => {
            let (of, to) = op.bind(step)?;
            let runs = saved(&at, [of.gamma, of.beta, of.saved]);
            normalization::recompute_forward(cpu, &op.bn, at.read(of.x), runs, at.write(to.y));
        }
        Op::BatchNormMoments(op) => {
            let (of, to) = op.bind(step)?;
            normalization::statistics(cpu, at.read(of.x), at.run_mut(to.stats));
        }
        Op::SyncBatchNorm(op) => {
            let (of, to) = op.bind(step)?;
            let runs = train(&mut at, [of.gamma, of.beta], of.bias, [to.saved, to.sums]);
            let (x, y, stats) = (at.read(of.x), at.write(to.y), at.run(of.stats));
            normalization::forward_synchronized(cpu, &op.bn, x, y, stats, runs);
        }
        Op::BatchNormWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, runs) = (at.read(of.x), at.read(of.dy), saved(&at, [of.gamma, of.beta, of.saved]));
            let (dgamma, dbeta) = (at.run_mut(to.dgamma), at.run_mut(to.dbeta));
            normalization::backward_params(cpu, &op.bn, x, dy, runs, dgamma, dbeta);
        }
        Op::BatchNormInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, runs) = (at.read(of.x), at.read(of.dy), saved(&at, [of.gamma, of.beta, of.saved]));
            let count = op.count(args, x.layout.shape);
            let sums = match of.dbeta {
                None => at.run(of.sums).split_at(x.layout.shape.c).into(),
                Some(dbeta) => [at.run(of.sums), at.run(dbeta)],
            };
            normalization::backward_data(cpu, &op.bn, x, dy, runs, sums, count, at.write(to.y), write);
        }
        Op::GroupNorm(op) => {
            let (of, to) = op.bind(step)?;
            let groups = Groups { op, gamma: at.run(of.gamma), beta: at.run(of.beta) };
            groups.forward(cpu, at.read(of.x), at.write(to.y));
        }
        Op::GroupNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let groups = Groups { op: &op.norm, gamma: at.run(of.gamma), beta: at.run(of.beta) };
            let gradients = [at.run_mut(to.dgamma), at.run_mut(to.dbeta)];
            groups.backward(cpu, at.read(of.x), at.read(of.dy), at.write(to.dx), gradients, write);
        }
        Op::LayerNorm(op) => {
            let (of, to) = op.bind(step)?;
            let affine = [at.run(of.gamma), at.run(of.beta)];
            layer_norm::forward(cpu, op.epsilon, at.read(of.x), affine, at.write(to.y));
        }
        Op::LayerNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, gamma, dy, dx) = (at.read(of.x), at.run(of.gamma), at.read(of.dy), at.write(to.dx));
            let gradients = [at.run_mut(to.dgamma), at.run_mut(to.dbeta)];
            layer_norm::backward(cpu, op.norm.epsilon, x, gamma, dy, dx, gradients, write);
        }
        Op::LocalResponseNorm(op) => {
            let (of, to) = op.bind(step)?;
            local_response_norm::forward(cpu, op, at.read(of.x), at.write(to.y));
        }
        Op::LocalResponseNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x), at.read(of.dy));
            local_response_norm::backward(cpu, &op.norm, x, dy, at.write(to.y), write);
        }
        Op::Activate(op) => {
            let (of, to) = op.bind(step)?;
            activation::forward(cpu, op.act, at.read(of.x), at.write(to.y));
        }
        Op::ActivationGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (y, dx) = (at.read(of.of), at.write(to.y));
            if program.is_in_place(step, of.dy) {
                activation::backward_in_place(cpu, op.act, y, dx);
            } else {
                activation::backward(cpu, op.act, y, at.read(of.dy), dx, write);
            }
        }
        Op::PRelu(op) => {
            let (of, to) = op.bind(step)?;
            prelu::forward(cpu, at.read(of.x), at.run(of.slopes), at.write(to.y));
        }
        Op::PReluInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, slopes, dy) = (at.read(of.x), at.run(of.slopes), at.read(of.dy));
            prelu::input_gradient(cpu, x, slopes, dy, at.write(to.y), write);
        }
        Op::PReluSlopeGradient(op) => {
            let (of, to) = op.bind(step)?;
            prelu::slope_gradient(cpu, at.read(of.x), at.read(of.dy), at.run_mut(to.dslopes));
        }
        Op::Add(op) => {
            let (of, to) = op.bind(step)?;
            let mut y = at.write(to.y);
            let other = if program.is_in_place(step, of.a) { of.b } else { of.a };
            if other == of.a && !program.is_in_place(step, of.b) {
                elementwise::copy(cpu, 1.0, at.read(of.b), y.reborrow(), Write::Set);
            }
            activation::add_forward(cpu, op.act, at.read(other), y);
        }
        Op::Merge(op) => {
            let (of, to) = op.bind(step)?;
            let (z, y) = (at.read(of.z), at.write(to.y));
            let spread = Spread::of("merge", y.layout.shape, z.layout.shape)?;
            let x = (!program.is_in_place(step, of.x)).then(|| at.read(of.x));
            merge::forward(cpu, (op.how, spread), x, z, y, write);
        }
        Op::MergeGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (dy, x) = (at.read(of.dy), of.x.map(|x| at.read(x)));
            merge::gradient(cpu, op.spread, dy, x, at.write(to.y), write);
        }
        Op::MaxPool(op) => {
            let (of, to) = op.bind(step)?;
            pooling::forward(cpu, pooling::Maximum, &op.pool, at.read(of.x), at.write(to.y));
        }
        Op::MaxPoolGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, y, dy) = (at.read(of.x), at.read(of.y), at.read(of.dy));
            pooling::max_backward(cpu, &op.pool, x, y, dy, at.write(to.y), write);
        }
        Op::AveragePool(op) => {
            let (of, to) = op.bind(step)?;
            pooling::forward(cpu, pooling::Average, &op.pool, at.read(of.x), at.write(to.y));
        }
        Op::AveragePoolGradient(op) => {
            let (of, to) = op.bind(step)?;
            pooling::average_backward(cpu, &op.pool, at.read(of.dy), at.write(to.y), write);
        }
        Op::ZeroPad(op) => {
            let (of, to) = op.bind(step)?;
            zero_pad::run(cpu, op, at.read(of.x), at.write(to.y), write);
        }
        Op::Upsample(op) => {
            let (of, to) = op.bind(step)?;
            upsample::forward(cpu, op, at.read(of.x), at.write(to.y));
        }
        Op::UpsampleGradient(op) => {
            let (of, to) = op.bind(step)?;
            upsample::backward(cpu, &op.upsample, at.read(of.dy), at.write(to.y), write);
        }
        Op::Dropout(op) => {
            let (of, to) = op.bind(step)?;
            dropout::apply(cpu, &op.mask(args), at.read(of.x), at.write(to.y), write);
        }
        Op::Scale(op) => {
            let (of, to) = op.bind(step)?;
            elementwise::copy(cpu, op.factor, at.read(of.x), at.write(to.y), write);
        }
        Op::Reshape(op) => {
            let (of, to) = op.bind(step)?;
            let (x, y) = (at.read(of.x), at.write(to.y));
            let [from, to] = Reshape::layouts(x.layout, y.layout);
            elementwise::copy(cpu, 1.0, View::new(x.data, from), ViewMut::new(y.data, to), write);
        }
        Op::Concat(_) => {
            for (part, layout) in program.copied_parts(step, args.n) {
                let part = at.read(step.operands[part]);
                elementwise::copy(cpu, 1.0, part, at.write_part(layout), Write::Set);
            }
        }
        Op::Slice(op) if program.is_inside(step, op.from) => {}
        Op::Slice(op) => {
            let (of, to) = op.bind(step)?;
            let x = at.read(of.x);
            let x = View::new(x.data, x.layout.channels(op.from..op.from + op.channels));
            elementwise::copy(cpu, 1.0, x, at.write(to.y), Write::Set);
        }
        Op::SliceGradient(op) => {
            let (of, to) = op.bind(step)?;
            channels::widen(cpu, op.slice.from, at.read(of.dy), at.write(to.y), write);
        }
        Op::ChannelShuffle(op) => {
            let (of, to) = op.bind(step)?;
            channels::shuffle(cpu, op.groups, at.read(of.x), at.write(to.y), write);
        }
        Op::Join(op) => {
            let (of, to) = op.bind(step)?;
            let (a, b) = (at.run(of.a), at.run(of.b));
            let (first, second) = at.run_mut(to.joined).split_at_mut(a.len());
            first.copy_from_slice(a);
            second.copy_from_slice(b);
        }
        // The caller's.
        Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {}
        Op::CrossEntropy(op) => {
            let loss = op.loss(args);
            loss.check("cross_entropy")?;
            let (logits, dlogits, metrics) = op.bind(step)?;
            let logits = at.read(logits);
            let labels = &at.labels()[..loss.words(args.n, logits.layout.shape.c)];
            let (dlogits, metrics) = (dlogits.map(|dlogits| at.write(dlogits)), at.run_mut(metrics));
            match loss.labels {
                Labels::MultiHot => softmax::binary_cross_entropy(&loss, logits, labels, dlogits, metrics),
                _ => softmax::cross_entropy(&loss, logits, labels, dlogits, metrics),
            }
        }
    }
    Ok(())
}

/// What a training pass of batch normalization reads, and leaves.
fn train<'s, E: Element>(
    at: &mut Operands<'s, '_, E>,
    [gamma, beta]: [TensorId; 2],
    bias: Option<TensorId>,
    [saved, sums]: [TensorId; 2],
) -> Train<'s, f32> {
    let bias = bias.map(|bias| at.run(bias));
    Train { gamma: at.run(gamma), beta: at.run(beta), bias, saved: at.run_mut(saved), sums: at.run_mut(sums) }
}

/// What inference reads.
fn infer<'s, E: Element>(at: &Operands<'s, '_, E>, runs: [TensorId; 4]) -> Infer<'s, f32> {
    let [gamma, beta, mean, var] = runs.map(|id| at.run(id));
    Infer { gamma, beta, mean, var }
}

/// What a backward pass reads.
fn saved<'s, E: Element>(at: &Operands<'s, '_, E>, runs: [TensorId; 3]) -> Saved<'s, f32> {
    let [gamma, beta, saved] = runs.map(|id| at.run(id));
    Saved { gamma, beta, saved }
}
