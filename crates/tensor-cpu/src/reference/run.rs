//! Programs on the reference: each op in front of its loop. Operands are copied before the op runs, so that none needs `unsafe`.

use super::operand::{Input, Output};
use super::{Reference, activation, batch_norm, conv, elementwise, linear, pooling, softmax};
use crate::norm_operands::{Infer, Saved, Train};
use crate::operand::runs_mut;
use core::ops::Range;
use program::ops::{Reshape, Slice};
use program::{
    Arena, Executable, Execute, Layout, Memory, Op, Result, Span, Step, StepArgs, TensorId, View, ViewMut,
    Write,
};

impl Execute for Reference {
    fn prepare(&self, _: &Executable) -> Result<()> {
        Ok(())
    }

    fn run(
        &self,
        program: &Executable,
        steps: Range<usize>,
        args: &StepArgs,
        memory: Memory<'_, Vec<f64>, Vec<u32>>,
    ) -> Result<()> {
        let Memory { activations, statistics, params, grads, averages, labels } = memory;
        let lens =
            [activations.len(), statistics.len(), params.len(), grads.len(), averages.len(), labels.len()];
        program.check_memory(args, lens)?;
        for k in steps {
            let step = program.step(k);
            let memory = Memory {
                activations: &mut *activations,
                statistics: &mut *statistics,
                params,
                grads: &mut *grads,
                averages,
                labels,
            };
            run_step(program, step, args, memory)?;
        }
        Ok(())
    }
}

/// What a step reads: copies of its operands.
struct Operands<'a> {
    values: Vec<(Vec<f64>, Layout)>,
    step: &'a Step,
    program: &'a Executable,
    n: usize,
}

impl<'a> Operands<'a> {
    fn new(program: &'a Executable, step: &'a Step, n: usize, memory: &Memory<Vec<f64>, Vec<u32>>) -> Self {
        let copy = |&id: &TensorId| {
            let layout = program.layout(id, n);
            let from: &[f64] = match program.program().tensor(id).arena {
                Arena::Activations => memory.activations,
                Arena::Statistics => memory.statistics,
                Arena::Parameters => memory.params,
                Arena::Gradients => memory.grads,
                Arena::Averages => memory.averages,
                Arena::Labels => return (Vec::new(), layout),
            };
            (from[layout.offset..layout.end()].to_vec(), Layout { offset: 0, ..layout })
        };
        Operands { values: step.operands.iter().map(copy).collect(), step, program, n }
    }

    fn count(&self) -> usize {
        self.values.len()
    }

    fn read(&self, operand: usize) -> Result<Input<'_>> {
        let (data, layout) = &self.values[operand];
        Input::new(self.step.op.name(), "an operand", View::new(data, *layout))
    }

    fn run(&self, operand: usize) -> &[f64] {
        &self.values[operand].0
    }

    fn optional_run(&self, operand: usize) -> Option<&[f64]> {
        (operand < self.count()).then(|| self.run(operand))
    }

    fn infer(&self, gamma: usize) -> Infer<'_, f64> {
        let [gamma, beta, mean, var] = [0, 1, 2, 3].map(|k| self.run(gamma + k));
        Infer { gamma, beta, mean, var }
    }

    fn saved(&self) -> Saved<'_, f64> {
        Saved { gamma: self.run(1), beta: self.run(2), saved: self.run(3) }
    }

    /// The first result.
    fn write<'m>(&self, activations: &'m mut Vec<f64>) -> Result<Output<'m>> {
        let layout = self.program.layout(self.step.results[0], self.n);
        Output::new(self.step.op.name(), "the result", ViewMut::new(activations, layout))
    }

    fn train<'m>(&'m self, gamma: usize, statistics: &'m mut [f64], grads: &'m mut [f64]) -> Train<'m, f64> {
        Train {
            gamma: self.run(gamma),
            beta: self.run(gamma + 1),
            bias: self.optional_run(gamma + 2),
            saved: &mut statistics[self.span(1).range()],
            sums: &mut grads[self.span(2).range()],
        }
    }

    /// Where a result lies.
    fn span(&self, result: usize) -> Span {
        self.program.span(self.step.results[result])
    }
}

fn run_step(
    program: &Executable,
    step: &Step,
    args: &StepArgs,
    memory: Memory<'_, Vec<f64>, Vec<u32>>,
) -> Result<()> {
    let at = Operands::new(program, step, args.n, &memory);
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
            conv::forward(
                &op.conv,
                op.act,
                at.read(0)?,
                at.run(1),
                at.optional_run(2),
                at.write(activations)?,
            );
        }
        Op::Conv2dNormalized(op) => {
            let norm = at.count() - 4;
            let b = (norm == 3).then(|| at.run(2));
            conv::forward_normalized(
                &op.conv,
                &op.bn,
                at.read(0)?,
                at.run(1),
                b,
                at.infer(norm),
                at.write(activations)?,
            );
        }
        Op::Conv2dInputGradient(op) => {
            conv::backward_data(&op.conv, at.read(0)?, at.run(1), at.write(activations)?, write)
        }
        Op::Conv2dWeightGradient(op) => {
            let [dw, db] = weights(grads)?;
            conv::backward_filter(&op.conv, at.read(0)?, at.read(1)?, dw);
            elementwise::column_sums(at.read(1)?, db);
        }
        Op::LinearForward(op) => {
            linear::forward(
                &op.linear,
                op.act,
                at.read(0)?,
                at.run(1),
                at.optional_run(2),
                at.write(activations)?,
            );
        }
        Op::LinearInputGradient(op) => {
            linear::backward_data(&op.linear, at.read(0)?, at.run(1), at.write(activations)?, write)
        }
        Op::LinearWeightGradient(op) => {
            let [dw, db] = weights(grads)?;
            linear::backward_filter(&op.linear, at.read(0)?, at.read(1)?, dw);
            elementwise::column_sums(at.read(1)?, db);
        }
        Op::BatchNormTrain(op) => batch_norm::forward_train(
            &op.bn,
            at.read(0)?,
            at.write(activations)?,
            at.train(1, statistics, grads),
        ),
        Op::BatchNormInfer(op) => {
            batch_norm::forward_infer(&op.bn, at.read(0)?, at.infer(1), at.write(activations)?)
        }
        Op::BatchNormRepeat(op) => {
            batch_norm::forward_again(&op.bn, at.read(0)?, at.saved(), at.write(activations)?)
        }
        Op::BatchNormMoments(_) => {
            batch_norm::statistics(at.read(0)?, &mut statistics[at.span(0).range()]);
        }
        Op::BatchNormJoined(op) => {
            batch_norm::forward_joined(
                &op.bn,
                at.read(0)?,
                at.write(activations)?,
                at.run(1),
                at.train(2, statistics, grads),
            );
        }
        Op::BatchNormWeightGradient(op) => {
            let [dgamma, dbeta] = weights(grads)?;
            batch_norm::backward_params(&op.bn, at.read(0)?, at.read(4)?, at.saved(), dgamma, dbeta);
        }
        Op::BatchNormInputGradient(op) => {
            let (x, dy, sums) = (at.read(0)?, at.read(4)?, [at.run(5), at.run(6)]);
            let count = op.count(args, x.shape());
            batch_norm::backward_data(&op.bn, x, dy, at.saved(), sums, count, at.write(activations)?, write);
        }
        Op::Activate(op) => activation::forward(op.act, at.read(0)?, at.write(activations)?),
        Op::ActivationGradient(op) => {
            activation::backward(op.act, at.read(0)?, at.read(1)?, at.write(activations)?, write)
        }
        Op::Add(op) => {
            let mut y = at.write(activations)?;
            elementwise::copy(1.0, at.read(1)?, y.reborrow(), Write::Set);
            activation::add_forward(op.act, at.read(0)?, y);
        }
        Op::MaxPool(op) => pooling::max_forward(&op.pool, at.read(0)?, at.write(activations)?),
        Op::MaxPoolGradient(op) => {
            pooling::max_backward(&op.pool, at.read(0)?, at.read(2)?, at.write(activations)?, write)
        }
        Op::AveragePool(op) => pooling::average_forward(&op.pool, at.read(0)?, at.write(activations)?),
        Op::AveragePoolGradient(op) => {
            pooling::average_backward(&op.pool, at.read(0)?, at.write(activations)?, write)
        }
        Op::Dropout(op) => elementwise::dropout(&op.mask(args), at.read(0)?, at.write(activations)?, write),
        Op::Scale(op) => elementwise::copy(f64::from(op.factor), at.read(0)?, at.write(activations)?, write),
        Op::Reshape(_) => {
            // The copy of the operand lies back to back where the result does not.
            let (from, to) = (&at.values[0], program.layout(step.results[0], args.n));
            let [x, y] = Reshape::layouts(from.1, to);
            let x = Input::new(name, "the input", View::new(&from.0, x))?;
            let y = Output::new(name, "the result", ViewMut::new(activations, y))?;
            elementwise::copy(1.0, x, y, write);
        }
        Op::Concat(_) => {
            for (part, layout) in program.copied_parts(step, args.n) {
                let y = Output::new(name, "the result", ViewMut::new(&mut *activations, layout))?;
                elementwise::copy(1.0, at.read(part)?, y, Write::Set);
            }
        }
        Op::Slice(Slice { from, .. }) if program.is_inside(step, *from) => {}
        Op::Slice(Slice { from, channels, arena: Arena::Activations }) => {
            let (data, layout) = &at.values[0];
            let x = View::new(data, layout.channels(*from..from + channels));
            elementwise::copy(1.0, Input::new(name, "the input", x)?, at.write(activations)?, Write::Set);
        }
        Op::Slice(Slice { from, channels, .. }) => {
            statistics[at.span(0).range()].copy_from_slice(&at.run(0)[*from..][..*channels]);
        }
        Op::Join(_) => {
            let (first, second) = statistics[at.span(0).range()].split_at_mut(at.run(0).len());
            first.copy_from_slice(at.run(0));
            second.copy_from_slice(at.run(1));
        }
        // The caller's.
        Op::Gather(_) | Op::SumOverReplicas(_) | Op::Receive(_) => {}
        Op::CrossEntropy(op) => {
            let loss = op.loss(args);
            loss.check(name)?;
            let labels = &labels[..loss.words(args.n)];
            let metrics = &mut grads[at.span(usize::from(op.gradient)).range()];
            let dlogits = if op.gradient { Some(at.write(activations)?) } else { None };
            softmax::cross_entropy(&loss, at.read(0)?, labels, dlogits, metrics);
        }
    }
    Ok(())
}
