//! Programs on the CPU, each op in front of its kernel, and on the reference, each op in front of its loop.
//!
//! The reference copies operands before an op runs, so that none needs `unsafe`.

use crate::conv::Convolved;
use crate::element::Element;
use crate::memory::{Arenas, Operands};
use crate::norm_operands::{Infer, Saved, Train};
use crate::normalization::Groups;
use crate::operand::runs_mut;
use crate::reference::operand::{Input, Output};
use crate::{
    Buffer, Cpu, activation, channels, conv, dropout, elementwise, linear, normalization, pooling, reference,
    softmax,
};
use core::ops::Range;
use program::ops::{Reshape, Slice};
use program::{Executable, Memory, Op, Result, Span, Step, StepArgs, View, ViewMut, Write};

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
            let (x, w, b) = (at.read(0), at.run(1), at.optional_run(2));
            conv::forward(cpu, &op.conv, op.act, x, w, b, at.write(0));
        }
        Op::Conv2dNormalized(op) => {
            let (x, w, b, norm) = (at.read(0), at.run(1), at.optional_run(6), infer(&at, 2));
            conv::forward_normalized(cpu, &op.conv, &op.bn, x, w, b, norm, at.write(0));
        }
        Op::Conv2dInputGradient(op) => {
            conv::backward_data(cpu, &op.conv, at.read(0), at.run(1), at.write(0), write);
        }
        Op::Conv2dWeightGradient(op) => {
            let (x, dy) = (at.read(0), at.read(1));
            conv::backward_filter(cpu, &op.conv, x, dy, at.run_mut(0));
            elementwise::column_sums(cpu, dy, at.optional_run_mut(1));
        }
        Op::LinearForward(op) => {
            let (x, w, b) = (at.read(0), at.run(1), at.optional_run(2));
            linear::forward(cpu, &op.linear, op.act, x, w, b, at.write(0));
        }
        Op::LinearInputGradient(op) => {
            linear::backward_data(cpu, &op.linear, at.read(0), at.run(1), at.write(0), write);
        }
        Op::LinearWeightGradient(op) => {
            let (x, dy) = (at.read(0), at.read(1));
            linear::backward_filter(cpu, &op.linear, x, dy, at.run_mut(0));
            elementwise::column_sums(cpu, dy, at.optional_run_mut(1));
        }
        Op::BatchNormTrain(op) => {
            let (x, y) = (at.read(0), at.write(0));
            normalization::forward_train(cpu, &op.bn, x, y, train(&mut at, 1));
        }
        Op::BatchNormInfer(op) => {
            normalization::forward_infer(cpu, &op.bn, at.read(0), infer(&at, 1), at.write(0));
        }
        Op::BatchNormInferGradient(op) => {
            let (dy, gamma, var) = (at.read(0), at.run(1), at.run(2));
            normalization::infer_backward(cpu, op, dy, [gamma, var], at.write(0));
        }
        Op::BatchNormRecompute(op) => {
            normalization::recompute_forward(cpu, &op.bn, at.read(0), saved(&at), at.write(0));
        }
        Op::BatchNormMoments(_) => normalization::statistics(cpu, at.read(0), at.run_mut(0)),
        Op::SyncBatchNorm(op) => {
            let (x, y, stats) = (at.read(0), at.write(0), at.run(1));
            normalization::forward_synchronized(cpu, &op.bn, x, y, stats, train(&mut at, 2));
        }
        Op::BatchNormWeightGradient(op) => {
            let (x, dy, runs) = (at.read(0), at.read(4), saved(&at));
            normalization::backward_params(cpu, &op.bn, x, dy, runs, at.run_mut(0), at.run_mut(1));
        }
        Op::BatchNormInputGradient(op) => {
            let (x, dy) = (at.read(0), at.read(4));
            let count = op.count(args, x.layout.shape);
            let sums = match op.shared {
                true => at.run(5).split_at(x.layout.shape.c).into(),
                false => [at.run(5), at.run(6)],
            };
            normalization::backward_data(cpu, &op.bn, x, dy, saved(&at), sums, count, at.write(0), write);
        }
        Op::GroupNorm(op) => {
            let groups = Groups { op, gamma: at.run(1), beta: at.run(2) };
            groups.forward(cpu, at.read(0), at.write(0));
        }
        Op::GroupNormGradient(op) => {
            let groups = Groups { op: &op.norm, gamma: at.run(1), beta: at.run(2) };
            let (x, dy, dx, gradients) =
                (at.read(0), at.read(3), at.write(0), [at.run_mut(1), at.run_mut(2)]);
            groups.backward(cpu, x, dy, dx, gradients, write);
        }
        Op::Activate(op) => activation::forward(cpu, op.act, at.read(0), at.write(0)),
        Op::ActivationGradient(op) if program.is_in_place(step, 1) => {
            activation::backward_in_place(cpu, op.act, at.read(0), at.write(0));
        }
        Op::ActivationGradient(op) => {
            activation::backward(cpu, op.act, at.read(0), at.read(1), at.write(0), write);
        }
        Op::Add(op) => {
            let mut y = at.write(0);
            let in_place = [0, 1].into_iter().find(|&operand| program.is_in_place(step, operand));
            if in_place.is_none() {
                elementwise::copy(cpu, 1.0, at.read(1), y.reborrow(), Write::Set);
            }
            let other = at.read(1 - in_place.unwrap_or(1));
            activation::add_forward(cpu, op.act, other, y);
        }
        Op::MaxPool(op) => pooling::forward(cpu, pooling::Maximum, &op.pool, at.read(0), at.write(0)),
        Op::MaxPoolGradient(op) => {
            pooling::max_backward(cpu, &op.pool, at.read(0), at.read(1), at.read(2), at.write(0), write);
        }
        Op::AveragePool(op) => pooling::forward(cpu, pooling::Average, &op.pool, at.read(0), at.write(0)),
        Op::AveragePoolGradient(op) => {
            pooling::average_backward(cpu, &op.pool, at.read(0), at.write(0), write);
        }
        Op::Dropout(op) => dropout::apply(cpu, &op.mask(args), at.read(0), at.write(0), write),
        Op::Scale(op) => elementwise::copy(cpu, op.factor, at.read(0), at.write(0), write),
        Op::Reshape(_) => {
            let (x, y) = (at.read(0), at.write(0));
            let [from, to] = Reshape::layouts(x.layout, y.layout);
            elementwise::copy(cpu, 1.0, View::new(x.data, from), ViewMut::new(y.data, to), write);
        }
        Op::Concat(_) => {
            for (part, layout) in program.copied_parts(step, args.n) {
                elementwise::copy(cpu, 1.0, at.read(part), at.write_part(layout), Write::Set);
            }
        }
        Op::Slice(Slice { from, .. }) if program.is_inside(step, *from) => {}
        Op::Slice(Slice { from, channels }) => {
            let x = at.read(0);
            let x = View::new(x.data, x.layout.channels(*from..from + channels));
            elementwise::copy(cpu, 1.0, x, at.write(0), Write::Set);
        }
        Op::SliceGradient(op) => channels::widen(cpu, op.slice.from, at.read(0), at.write(0), write),
        Op::ChannelShuffle(op) => channels::shuffle(cpu, op.groups, at.read(0), at.write(0), write),
        Op::Join(_) => {
            let (a, b) = (at.run(0), at.run(1));
            let (first, second) = at.run_mut(0).split_at_mut(a.len());
            first.copy_from_slice(a);
            second.copy_from_slice(b);
        }
        // The caller's.
        Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {}
        Op::CrossEntropy(op) => {
            let loss = op.loss(args);
            loss.check("cross_entropy")?;
            let (logits, labels) = (at.read(0), &at.labels()[..loss.words(args.n)]);
            let dlogits = op.gradient.then(|| at.write(0));
            softmax::cross_entropy(&loss, logits, labels, dlogits, at.run_mut(usize::from(op.gradient)));
        }
    }
    Ok(())
}

/// What a training pass of batch normalization reads, from its gamma on, and leaves.
fn train<'s, E: Element>(at: &mut Operands<'s, '_, E>, gamma: usize) -> Train<'s, f32> {
    Train {
        gamma: at.run(gamma),
        beta: at.run(gamma + 1),
        bias: at.optional_run(gamma + 2),
        saved: at.run_mut(1),
        sums: at.run_mut(2),
    }
}

/// What inference reads, from its gamma on.
fn infer<'s, E: Element>(at: &Operands<'s, '_, E>, gamma: usize) -> Infer<'s, f32> {
    Infer { gamma: at.run(gamma), beta: at.run(gamma + 1), mean: at.run(gamma + 2), var: at.run(gamma + 3) }
}

/// What a backward pass reads.
fn saved<'s, E: Element>(at: &Operands<'s, '_, E>) -> Saved<'s, f32> {
    Saved { gamma: at.run(1), beta: at.run(2), saved: at.run(3) }
}

/// A step on the reference.
pub(crate) fn run_reference(
    program: &Executable,
    step: &Step,
    args: &StepArgs,
    memory: Memory<'_, Vec<f64>, Vec<u32>>,
) -> Result<()> {
    let at = reference::operand::Operands::new(program, step, args.n, &memory);
    let Memory { activations, statistics, grads, labels, .. } = memory;
    let write = if step.onto.is_some() { Write::Add } else { Write::Set };
    let name = step.op.name();
    // The gradients of weights, and of a bias if there is one.
    let weights = |grads| {
        let w = program.span(step.results[0]);
        let b = step.results.get(1).map_or(Span::new(w.end(), 0), |&b| program.span(b));
        runs_mut(name, "the gradients", grads, w, b)
    };
    match &step.op {
        Op::Conv2dForward(op) => {
            reference::conv::forward(
                &op.conv,
                op.act,
                at.read(0)?,
                at.run(1),
                at.optional_run(2),
                at.write(activations)?,
            );
        }
        Op::Conv2dNormalized(op) => {
            let (x, w, b, norm) = (at.read(0)?, at.run(1), at.optional_run(6), at.infer(2));
            reference::conv::forward_normalized(&op.conv, &op.bn, x, w, b, norm, at.write(activations)?);
        }
        Op::Conv2dInputGradient(op) => {
            reference::conv::backward_data(&op.conv, at.read(0)?, at.run(1), at.write(activations)?, write)
        }
        Op::Conv2dWeightGradient(op) => {
            let [dw, db] = weights(grads)?;
            reference::conv::backward_filter(&op.conv, at.read(0)?, at.read(1)?, dw);
            reference::elementwise::column_sums(at.read(1)?, db);
        }
        Op::LinearForward(op) => {
            reference::linear::forward(
                &op.linear,
                op.act,
                at.read(0)?,
                at.run(1),
                at.optional_run(2),
                at.write(activations)?,
            );
        }
        Op::LinearInputGradient(op) => reference::linear::backward_data(
            &op.linear,
            at.read(0)?,
            at.run(1),
            at.write(activations)?,
            write,
        ),
        Op::LinearWeightGradient(op) => {
            let [dw, db] = weights(grads)?;
            reference::linear::backward_filter(&op.linear, at.read(0)?, at.read(1)?, dw);
            reference::elementwise::column_sums(at.read(1)?, db);
        }
        Op::BatchNormTrain(op) => reference::normalization::forward_train(
            &op.bn,
            at.read(0)?,
            at.write(activations)?,
            at.train(1, statistics, grads),
        ),
        Op::BatchNormInfer(op) => {
            reference::normalization::forward_infer(&op.bn, at.read(0)?, at.infer(1), at.write(activations)?)
        }
        Op::BatchNormInferGradient(op) => {
            let (dy, gamma, var) = (at.read(0)?, at.run(1), at.run(2));
            reference::normalization::infer_backward(op, dy, gamma, var, at.write(activations)?);
        }
        Op::BatchNormRecompute(op) => reference::normalization::recompute_forward(
            &op.bn,
            at.read(0)?,
            at.saved(),
            at.write(activations)?,
        ),
        Op::BatchNormMoments(_) => {
            reference::normalization::statistics(at.read(0)?, &mut statistics[at.span(0).range()]);
        }
        Op::SyncBatchNorm(op) => {
            reference::normalization::forward_synchronized(
                &op.bn,
                at.read(0)?,
                at.write(activations)?,
                at.run(1),
                at.train(2, statistics, grads),
            );
        }
        Op::BatchNormWeightGradient(op) => {
            let [dgamma, dbeta] = weights(grads)?;
            reference::normalization::backward_params(
                &op.bn,
                at.read(0)?,
                at.read(4)?,
                at.saved(),
                dgamma,
                dbeta,
            );
        }
        Op::BatchNormInputGradient(op) => {
            let (x, dy) = (at.read(0)?, at.read(4)?);
            let count = op.count(args, x.shape());
            let sums = match op.shared {
                true => at.run(5).split_at(x.shape().c).into(),
                false => [at.run(5), at.run(6)],
            };
            reference::normalization::backward_data(
                &op.bn,
                x,
                dy,
                at.saved(),
                sums,
                count,
                at.write(activations)?,
                write,
            );
        }
        Op::GroupNorm(op) => {
            let affine = [at.run(1), at.run(2)];
            reference::normalization::group_forward(op, at.read(0)?, affine, at.write(activations)?);
        }
        Op::GroupNormGradient(op) => {
            let (x, dy, affine) = (at.read(0)?, at.read(3)?, [at.run(1), at.run(2)]);
            let gradients = runs_mut(name, "the gradients", grads, at.span(1), at.span(2))?;
            let dx = at.write(activations)?;
            reference::normalization::group_backward(&op.norm, x, dy, affine, dx, gradients, write);
        }
        Op::Activate(op) => reference::activation::forward(op.act, at.read(0)?, at.write(activations)?),
        Op::ActivationGradient(op) => {
            reference::activation::backward(op.act, at.read(0)?, at.read(1)?, at.write(activations)?, write)
        }
        Op::Add(op) => {
            let mut y = at.write(activations)?;
            reference::elementwise::copy(1.0, at.read(1)?, y.reborrow(), Write::Set);
            reference::activation::add_forward(op.act, at.read(0)?, y);
        }
        Op::MaxPool(op) => reference::pooling::max_forward(&op.pool, at.read(0)?, at.write(activations)?),
        Op::MaxPoolGradient(op) => reference::pooling::max_backward(
            &op.pool,
            at.read(0)?,
            at.read(2)?,
            at.write(activations)?,
            write,
        ),
        Op::AveragePool(op) => {
            reference::pooling::average_forward(&op.pool, at.read(0)?, at.write(activations)?)
        }
        Op::AveragePoolGradient(op) => {
            reference::pooling::average_backward(&op.pool, at.read(0)?, at.write(activations)?, write)
        }
        Op::Dropout(op) => {
            reference::elementwise::dropout(&op.mask(args), at.read(0)?, at.write(activations)?, write)
        }
        Op::Scale(op) => {
            reference::elementwise::copy(f64::from(op.factor), at.read(0)?, at.write(activations)?, write)
        }
        Op::Reshape(_) => {
            // The copy of the operand lies back to back where the result does not.
            let (from, to) = (&at.values[0], program.layout(step.results[0], args.n));
            let [x, y] = Reshape::layouts(from.1, to);
            let x = Input::new(name, "the input", View::new(&from.0, x))?;
            let y = Output::new(name, "the result", ViewMut::new(activations, y))?;
            reference::elementwise::copy(1.0, x, y, write);
        }
        Op::Concat(_) => {
            for (part, layout) in program.copied_parts(step, args.n) {
                let y = Output::new(name, "the result", ViewMut::new(&mut *activations, layout))?;
                reference::elementwise::copy(1.0, at.read(part)?, y, Write::Set);
            }
        }
        Op::Slice(Slice { from, .. }) if program.is_inside(step, *from) => {}
        Op::Slice(Slice { from, channels }) => {
            let (data, layout) = &at.values[0];
            let x = View::new(data, layout.channels(*from..from + channels));
            reference::elementwise::copy(
                1.0,
                Input::new(name, "the input", x)?,
                at.write(activations)?,
                Write::Set,
            );
        }
        Op::SliceGradient(op) => {
            reference::channels::widen(op.slice.from, at.read(0)?, at.write(activations)?, write);
        }
        Op::ChannelShuffle(op) => {
            reference::channels::shuffle(op.groups, at.read(0)?, at.write(activations)?, write);
        }
        Op::Join(_) => {
            let (first, second) = statistics[at.span(0).range()].split_at_mut(at.run(0).len());
            first.copy_from_slice(at.run(0));
            second.copy_from_slice(at.run(1));
        }
        // The caller's.
        Op::AllGather(_) | Op::AllReduce(_) | Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_) => {}
        Op::CrossEntropy(op) => {
            let loss = op.loss(args);
            loss.check(name)?;
            let labels = &labels[..loss.words(args.n)];
            let metrics = &mut grads[at.span(usize::from(op.gradient)).range()];
            let dlogits = if op.gradient { Some(at.write(activations)?) } else { None };
            reference::softmax::cross_entropy(&loss, at.read(0)?, labels, dlogits, metrics);
        }
    }
    Ok(())
}
