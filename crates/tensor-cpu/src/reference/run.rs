//! Programs on the reference: each op in front of its loop. Operands and results are copied, so that none needs `unsafe`.

use super::operand::{Lent, Operands, Results};
use super::{
    activation, channels, conv, depthwise, elementwise, linear, merge, normalization, pixel_norm, pooling,
    prelu, softmax, spatial,
};
use crate::norm_operands::{Infer, Saved, Train};
use towers_program::ops::{Reshape, Spread};
use towers_program::{Executable, Labels, Layout, Memory, Op, Result, Step, StepArgs, TensorId, Write};

/// Runs a step.
pub(crate) fn run(
    program: &Executable,
    step: &Step,
    args: &StepArgs,
    memory: Memory<'_, Vec<f64>, Vec<u32>>,
) -> Result<()> {
    let operands = Operands::new(program, step, args.n, &memory);
    let mut results = Results::new(program, step, args.n, &memory);
    run_step(program, step, args, &operands, results.lend())?;
    results.store(program, memory);
    Ok(())
}

fn run_step<'a, 'm: 'a>(
    program: &Executable,
    step: &Step,
    args: &StepArgs,
    at: &'a Operands,
    mut into: Lent<'m>,
) -> Result<()> {
    let write = if step.onto.is_some() { Write::Add } else { Write::Set };
    match &step.op {
        Op::Conv2dForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x)?, at.run(of.w), of.b.map(|b| at.run(b)));
            conv::forward(&op.conv, op.act, x, w, b, into.write(to.y)?);
        }
        Op::Conv2dNormalized(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x)?, at.run(of.w), of.b.map(|b| at.run(b)));
            let norm = infer(at, [of.gamma, of.beta, of.mean, of.var]);
            conv::forward_normalized(&op.conv, &op.bn, x, w, b, norm, into.write(to.y)?);
        }
        Op::Conv2dInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            conv::backward_data(&op.conv, at.read(of.dy)?, at.run(of.w), into.write(to.y)?, write);
        }
        Op::Conv2dWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x)?, at.read(of.dy)?);
            conv::backward_filter(&op.conv, x, dy, into.run(to.dw));
            elementwise::column_sums(dy, into.optional_run(to.db));
        }
        Op::DepthwiseForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x)?, at.run(of.w), of.b.map(|b| at.run(b)));
            depthwise::forward(&op.conv, op.act, x, w, b, into.write(to.y)?);
        }
        Op::DepthwiseNormalized(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x)?, at.run(of.w), of.b.map(|b| at.run(b)));
            let norm = infer(at, [of.gamma, of.beta, of.mean, of.var]);
            depthwise::forward_normalized(&op.conv, &op.bn, x, w, b, norm, into.write(to.y)?);
        }
        Op::DepthwiseInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            depthwise::backward_data(&op.conv, at.read(of.dy)?, at.run(of.w), into.write(to.y)?, write);
        }
        Op::DepthwiseWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x)?, at.read(of.dy)?);
            depthwise::backward_filter(&op.conv, x, dy, into.run(to.dw));
            elementwise::column_sums(dy, into.optional_run(to.db));
        }
        Op::LinearForward(op) => {
            let (of, to) = op.bind(step)?;
            let (x, w, b) = (at.read(of.x)?, at.run(of.w), of.b.map(|b| at.run(b)));
            linear::forward(&op.linear, op.act, x, w, b, into.write(to.y)?);
        }
        Op::LinearInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            linear::backward_data(&op.linear, at.read(of.dy)?, at.run(of.w), into.write(to.y)?, write);
        }
        Op::LinearWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x)?, at.read(of.dy)?);
            linear::backward_filter(&op.linear, x, dy, into.run(to.dw));
            elementwise::column_sums(dy, into.optional_run(to.db));
        }
        Op::BatchNormTrain(op) => {
            let (of, to) = op.bind(step)?;
            let runs = train(at, &mut into, [of.gamma, of.beta], of.bias, [to.saved, to.sums]);
            normalization::forward_train(&op.bn, at.read(of.x)?, into.write(to.y)?, runs);
        }
        Op::BatchNormInfer(op) => {
            let (of, to) = op.bind(step)?;
            let norm = infer(at, [of.gamma, of.beta, of.mean, of.var]);
            normalization::forward_infer(&op.bn, at.read(of.x)?, norm, into.write(to.y)?);
        }
        Op::BatchNormInferGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (dy, gamma, var) = (at.read(of.dy)?, at.run(of.gamma), at.run(of.var));
            normalization::infer_backward(op, dy, gamma, var, into.write(to.y)?);
        }
        Op::BatchNormRecompute(op) => {
            let (of, to) = op.bind(step)?;
            let runs = saved(at, [of.gamma, of.beta, of.saved]);
            normalization::recompute_forward(&op.bn, at.read(of.x)?, runs, into.write(to.y)?);
        }
        Op::BatchNormMoments(op) => {
            let (of, to) = op.bind(step)?;
            normalization::statistics(at.read(of.x)?, into.run(to.stats));
        }
        Op::SyncBatchNorm(op) => {
            let (of, to) = op.bind(step)?;
            let runs = train(at, &mut into, [of.gamma, of.beta], of.bias, [to.saved, to.sums]);
            let (x, y, stats) = (at.read(of.x)?, into.write(to.y)?, at.run(of.stats));
            normalization::forward_synchronized(&op.bn, x, y, stats, runs);
        }
        Op::BatchNormWeightGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, runs) = (at.read(of.x)?, at.read(of.dy)?, saved(at, [of.gamma, of.beta, of.saved]));
            let (dgamma, dbeta) = (into.run(to.dgamma), into.run(to.dbeta));
            normalization::backward_params(&op.bn, x, dy, runs, dgamma, dbeta);
        }
        Op::BatchNormInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, runs) = (at.read(of.x)?, at.read(of.dy)?, saved(at, [of.gamma, of.beta, of.saved]));
            let count = op.count(args, x.shape());
            let sums = match of.dbeta {
                None => at.run(of.sums).split_at(x.shape().c).into(),
                Some(dbeta) => [at.run(of.sums), at.run(dbeta)],
            };
            normalization::backward_data(&op.bn, x, dy, runs, sums, count, into.write(to.y)?, write);
        }
        Op::GroupNorm(op) => {
            let (of, to) = op.bind(step)?;
            let affine = [at.run(of.gamma), at.run(of.beta)];
            normalization::group_forward(op, at.read(of.x)?, affine, into.write(to.y)?);
        }
        Op::GroupNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy, affine) = (at.read(of.x)?, at.read(of.dy)?, [at.run(of.gamma), at.run(of.beta)]);
            let gradients = [into.run(to.dgamma), into.run(to.dbeta)];
            let dx = into.write(to.dx)?;
            normalization::group_backward(&op.norm, x, dy, affine, dx, gradients, write);
        }
        Op::LayerNorm(op) => {
            let (of, to) = op.bind(step)?;
            let affine = [at.run(of.gamma), at.run(of.beta)];
            pixel_norm::layer_forward(op, at.read(of.x)?, affine, into.write(to.y)?);
        }
        Op::LayerNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, gamma, dy) = (at.read(of.x)?, at.run(of.gamma), at.read(of.dy)?);
            let gradients = [into.run(to.dgamma), into.run(to.dbeta)];
            pixel_norm::layer_backward(&op.norm, x, gamma, dy, into.write(to.dx)?, gradients, write);
        }
        Op::LocalResponseNorm(op) => {
            let (of, to) = op.bind(step)?;
            pixel_norm::response_forward(op, at.read(of.x)?, into.write(to.y)?);
        }
        Op::LocalResponseNormGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x)?, at.read(of.dy)?);
            pixel_norm::response_backward(&op.norm, x, dy, into.write(to.y)?, write);
        }
        Op::Activate(op) => {
            let (of, to) = op.bind(step)?;
            activation::forward(op.act, at.read(of.x)?, into.write(to.y)?);
        }
        Op::ActivationGradient(op) => {
            let (of, to) = op.bind(step)?;
            activation::backward(op.act, at.read(of.of)?, at.read(of.dy)?, into.write(to.y)?, write);
        }
        Op::PRelu(op) => {
            let (of, to) = op.bind(step)?;
            prelu::forward(at.read(of.x)?, at.run(of.slopes), into.write(to.y)?);
        }
        Op::PReluInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, slopes, dy) = (at.read(of.x)?, at.run(of.slopes), at.read(of.dy)?);
            prelu::input_gradient(x, slopes, dy, into.write(to.y)?, write);
        }
        Op::PReluSlopeGradient(op) => {
            let (of, to) = op.bind(step)?;
            prelu::slope_gradient(at.read(of.x)?, at.read(of.dy)?, into.run(to.dslopes));
        }
        Op::Add(op) => {
            let (of, to) = op.bind(step)?;
            let mut y = into.write(to.y)?;
            elementwise::copy(1.0, at.read(of.b)?, y.reborrow(), Write::Set);
            activation::add_forward(op.act, at.read(of.a)?, y);
        }
        Op::Merge(op) => {
            let (of, to) = op.bind(step)?;
            let (x, z) = (at.read(of.x)?, at.read(of.z)?);
            let spread = Spread::of("merge", x.shape(), z.shape())?;
            merge::forward(op.how, spread, x, z, into.write(to.y)?, write);
        }
        Op::MergeGradient(op) => {
            let (of, to) = op.bind(step)?;
            let x = of.x.map(|x| at.read(x)).transpose()?;
            merge::gradient(op.spread, at.read(of.dy)?, x, into.write(to.y)?, write);
        }
        Op::MaxPool(op) => {
            let (of, to) = op.bind(step)?;
            pooling::max_forward(&op.pool, at.read(of.x)?, into.write(to.y)?);
        }
        Op::MaxPoolGradient(op) => {
            let (of, to) = op.bind(step)?;
            let (x, dy) = (at.read(of.x)?, at.read(of.dy)?);
            pooling::max_backward(&op.pool, x, dy, into.write(to.y)?, write);
        }
        Op::AveragePool(op) => {
            let (of, to) = op.bind(step)?;
            pooling::average_forward(&op.pool, at.read(of.x)?, into.write(to.y)?);
        }
        Op::AveragePoolGradient(op) => {
            let (of, to) = op.bind(step)?;
            pooling::average_backward(&op.pool, at.read(of.dy)?, into.write(to.y)?, write);
        }
        Op::ZeroPad(op) => {
            let (of, to) = op.bind(step)?;
            spatial::zero_pad(op, at.read(of.x)?, into.write(to.y)?, write);
        }
        Op::Upsample(op) => {
            let (of, to) = op.bind(step)?;
            spatial::upsample(op, at.read(of.x)?, into.write(to.y)?);
        }
        Op::UpsampleGradient(op) => {
            let (of, to) = op.bind(step)?;
            spatial::upsample_gradient(&op.upsample, at.read(of.dy)?, into.write(to.y)?, write);
        }
        Op::Dropout(op) => {
            let (of, to) = op.bind(step)?;
            elementwise::dropout(&op.mask(args), at.read(of.x)?, into.write(to.y)?, write);
        }
        Op::Scale(op) => {
            let (of, to) = op.bind(step)?;
            elementwise::copy(op.factor.into(), at.read(of.x)?, into.write(to.y)?, write);
        }
        Op::Reshape(op) => {
            let (of, to) = op.bind(step)?;
            // The copy of the operand lies back to back where the result does not.
            let layout = |id| Layout { offset: 0, ..program.layout(id, args.n) };
            let [from, into_shape] = Reshape::layouts(layout(of.x), layout(to.y));
            elementwise::copy(1.0, at.read_as(of.x, |_| from)?, into.write_as(to.y, |_| into_shape)?, write);
        }
        Op::Concat(_) => {
            for (part, layout) in program.copied_parts(step, args.n) {
                elementwise::copy(1.0, at.read(step.operands[part])?, into.write_part(layout)?, Write::Set);
            }
        }
        Op::Slice(op) if program.is_inside(step, op.from) => {}
        Op::Slice(op) => {
            let (of, to) = op.bind(step)?;
            let x = at.read_as(of.x, |layout| layout.channels(op.from..op.from + op.channels))?;
            elementwise::copy(1.0, x, into.write(to.y)?, Write::Set);
        }
        Op::SliceGradient(op) => {
            let (of, to) = op.bind(step)?;
            channels::widen(op.slice.from, at.read(of.dy)?, into.write(to.y)?, write);
        }
        Op::ChannelShuffle(op) => {
            let (of, to) = op.bind(step)?;
            channels::shuffle(op.groups, at.read(of.x)?, into.write(to.y)?, write);
        }
        Op::Join(op) => {
            let (of, to) = op.bind(step)?;
            let (a, b) = (at.run(of.a), at.run(of.b));
            let (first, second) = into.run(to.joined).split_at_mut(a.len());
            first.copy_from_slice(a);
            second.copy_from_slice(b);
        }
        // The caller's.
        Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {}
        Op::CrossEntropy(op) => {
            let loss = op.loss(args);
            loss.check("cross_entropy")?;
            let (logits, dlogits, metrics) = op.bind(step)?;
            let logits = at.read(logits)?;
            let labels = &at.labels()[..loss.words(args.n, logits.shape().c)];
            let dlogits = dlogits.map(|dlogits| into.write(dlogits)).transpose()?;
            let metrics = into.run(metrics);
            match loss.labels {
                Labels::MultiHot => softmax::binary_cross_entropy(&loss, logits, labels, dlogits, metrics),
                _ => softmax::cross_entropy(&loss, logits, labels, dlogits, metrics),
            }
        }
    }
    Ok(())
}

/// What a training pass of batch normalization reads, and leaves.
fn train<'a, 'm: 'a>(
    at: &'a Operands,
    into: &mut Lent<'m>,
    [gamma, beta]: [TensorId; 2],
    bias: Option<TensorId>,
    [saved, sums]: [TensorId; 2],
) -> Train<'a, f64> {
    let bias = bias.map(|bias| at.run(bias));
    Train { gamma: at.run(gamma), beta: at.run(beta), bias, saved: into.run(saved), sums: into.run(sums) }
}

/// What inference reads.
fn infer<'a>(at: &'a Operands, runs: [TensorId; 4]) -> Infer<'a, f64> {
    let [gamma, beta, mean, var] = runs.map(|id| at.run(id));
    Infer { gamma, beta, mean, var }
}

/// What a backward pass reads.
fn saved<'a>(at: &'a Operands, runs: [TensorId; 3]) -> Saved<'a, f64> {
    let [gamma, beta, saved] = runs.map(|id| at.run(id));
    Saved { gamma, beta, saved }
}
