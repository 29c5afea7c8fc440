//! Several ops in a row on one device: what one leaves behind must not reach the next.

use crate::convolution::{Convolution, TOLERANCE};
use crate::dense::Dense;
use crate::normalization::Normalization;
use crate::operand::*;
use crate::{Bench, Case, Output, Started, Subject};
use towers_optim::{Rmsprop, Sgd, WeightDecay};
use towers_program::ops::{
    BatchNormTrain, Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient, LinearForward,
    LinearWeightGradient,
};
use towers_program::{
    Activation, Arena, BatchNorm, Conv2d, Layout, Linear, Pad, ParamRun, Result, Shape, Span, StepArgs, View,
    ViewMut, Write,
};

const CONV: Conv2d =
    Conv2d { pad: Pad { top: 1, bottom: 1, left: 1, right: 1 }, ..Conv2d::new(8, 16, [3; 2]) };
const POINTWISE: Conv2d = Conv2d { inputs: 16, outputs: 8, kernel: [1; 2], pad: Pad::VALID, ..CONV };

/// Ops of very different sizes, which share a device's scratch memory, one after the other.
#[derive(Debug)]
struct Scratch {
    backwards: bool,
}

impl Case for Scratch {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (act, place, mode) = (Activation::Relu, SLICE, Write::Add);
        let convolution = |conv, n, side| {
            let shape = Shape::new(n, side, side, Conv2d::clone(&conv).inputs);
            Convolution { conv, shape, place, act, bias: true, mode }.run(bench)
        };
        let dense = |inputs, outputs, samples| {
            let linear = Linear { inputs, outputs };
            Dense { linear, samples, place, act, bias: true, mode }.run(bench)
        };
        let normalization = |n, side, c| {
            let shape = Shape::new(n, side, side, c);
            Normalization { shape, place, act, mode, mean: 0.0 }.run(bench)
        };
        let ops: [&dyn Fn() -> Result<Vec<Output>>; 8] = [
            &|| convolution(CONV, 2, 8),
            &|| normalization(4, 9, 40),
            &|| convolution(POINTWISE, 1, 3),
            &|| dense(64, 10, 5),
            &|| convolution(CONV, 0, 8),
            &|| normalization(1, 2, 3),
            &|| dense(7, 3, 1),
            &|| convolution(CONV, 1, 4),
        ];
        let mut results = vec![Vec::new(); ops.len()];
        let order: Vec<usize> =
            if self.backwards { (0..ops.len()).rev().collect() } else { (0..ops.len()).collect() };
        for k in order {
            results[k] = ops[k]()?;
        }
        Ok(results.concat())
    }
}

/// Ops give the same bits whatever ran before them.
pub fn the_order_of_ops_changes_no_bit(subject: &Subject) {
    subject.agree(&Scratch { backwards: false });
    for bench in subject.benches() {
        let run = |backwards| Scratch { backwards }.run(&bench).expect("ops in a row");
        for (a, b) in run(false).iter().zip(&run(true)) {
            assert!(a.same_bits(b), "{} has other bits in another order", a.name);
        }
    }
}

/// Two convolutions and a dense layer whose gradients share an arena, which is completed once a step.
#[derive(Debug)]
struct SharedArena;

impl Case for SharedArena {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (linear, image, wide) =
            (Linear { inputs: 24, outputs: 10 }, Shape::new(3, 5, 5, 8), Shape::new(3, 5, 5, 16));
        let shapes = [Shape::vectors(3, 24), Shape::vectors(3, 10), wide, image, image, wide];
        let mut ops = bench.ops(3, ALONE);
        let inputs = shapes.map(|shape| ops.draw("x", shape));
        let gradients = [CONV.weights(), CONV.outputs, 32, POINTWISE.weights(), 240];
        let gradients = gradients.map(|len| ops.numbers(Arena::Gradients, "grads", len));
        let [first, bias, between, second, last] = gradients;
        ops.set(LinearWeightGradient { linear, bias: false }, &inputs[..2], [last]);
        ops.set(Conv2dWeightGradient { conv: POINTWISE, bias: false }, &inputs[2..4], [second]);
        ops.set(Conv2dWeightGradient { conv: CONV, bias: true }, &inputs[4..], [first, bias]);
        let Started { mut run, .. } = ops.start()?;
        let [between_at, cut, end] = [between, second, last].map(|id| run.executable.span(id));
        let whole = Span::new(0, end.end());
        let split = Span::new(cut.offset, whole.end() - cut.offset);
        // A bucket at a time, as replicas add them up, or all at once.
        for (n, buckets) in [(3, vec![split, Span::new(0, cut.offset)]), (2, vec![whole])] {
            for (k, (&id, shape)) in inputs.iter().zip(shapes).enumerate() {
                let values = numbers(&format!("{k} of {n}"), shape.with_n(n).len());
                run.write(id, &values.into_iter().map(|x| bench.round(x)).collect::<Vec<_>>())?;
            }
            run.run_steps(0..3, &StepArgs::inference(n))?;
            bench.device.fill(0.5, &mut run.gradients, between_at)?;
            buckets
                .into_iter()
                .try_for_each(|bucket| bench.device.finish_grads(&mut run.gradients, bucket))?;
        }
        let names =
            ["dw of the first", "db of the first", "what lies between", "dw of the second", "dw of the last"];
        let done = Started { run, n: 2 };
        let output = |(id, name)| {
            Ok(done.output(id, name, if id == between { 0.0 } else { TOLERANCE })?.of_products())
        };
        gradients.into_iter().zip(names).map(output).collect()
    }
}

/// `finish_grads` brings all gradients of a step into place, and those of the step before are gone.
pub fn finished_gradients_are_those_of_the_last_step(subject: &Subject) {
    subject.agree(&SharedArena);
}

/// A convolution and a dense layer with parameters that change in every way in which they can.
#[derive(Debug)]
struct Changing;

impl Case for Changing {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (device, linear) = (bench.device, Linear { inputs: 16, outputs: 24 });
        let (act, image, wide) = (Activation::None, Shape::new(3, 4, 4, 8), Shape::new(3, 4, 4, 16));
        let mut ops = bench.ops(3, ALONE);
        let (x, dy, vectors) =
            (ops.draw("x", image), ops.draw("dy", wide), ops.draw("vectors", Shape::vectors(3, 16)));
        let (y, dx, z) = (ops.draw("y", wide), ops.draw("dx", image), ops.draw("z", Shape::vectors(3, 24)));
        let (w, dense) = (ops.weights("w", CONV.weights()), ops.weights("dense", 16 * 24));
        ops.set(Conv2dForward { conv: CONV, act }, [x, w], [y]);
        ops.set(Conv2dInputGradient { conv: CONV, x: image.with_n(1) }, [dy, w], [dx]);
        ops.set(LinearForward { linear, act }, [vectors, dense], [z]);
        let Started { mut run, .. } = ops.start()?;
        let whole = Span::new(0, run.executable.span(dense).end());
        let params = ParamRun::new(whole, WeightDecay::None);
        let grads = bench.buffer_of(vec![bench.loss_scale; whole.len])?;
        let mut outputs = Vec::new();
        let mut state = bench.buffer_of(vec![0.5; whole.len])?;
        let other =
            bench.buffer_of(numbers("others", whole.len).into_iter().map(|x| bench.round(x)).collect())?;
        for change in ["none", "upload", "step", "fill", "copy", "another step"] {
            match change {
                "upload" => {
                    let new: Vec<f32> =
                        numbers("other params", 100).into_iter().map(|x| bench.round(x)).collect();
                    device.upload(&new, &mut run.parameters, 40)?;
                }
                "step" => {
                    let rule = Sgd::keras().into();
                    let weights = &mut run.parameters;
                    device.optimizer_step(&rule, 0.25, weights, &grads.data, &mut [], &[params])?;
                }
                "fill" => device.fill(0.5, &mut run.parameters, Span::new(100, whole.len - 200))?,
                "copy" => {
                    let at = Layout::contiguous(Shape::vectors(1, whole.len));
                    let to = ViewMut::new(&mut run.parameters, at);
                    device.copy(View::new(&other.data, at), to, Write::Set)?;
                }
                "another step" => {
                    let rule = Rmsprop::keras2().rho(0.5).epsilon(0.1).into();
                    let (weights, state) = (&mut run.parameters, &mut [&mut state.data]);
                    device.optimizer_step(&rule, 0.25, weights, &grads.data, state, &[params])?;
                }
                _ => {}
            }
            run.run(&StepArgs::inference(3))?;
            let done = Started { run, n: 3 };
            for (name, tensor) in [("y", y), ("dx", dx), ("z", z)] {
                outputs.push(done.output(tensor, name, TOLERANCE)?.of_products());
            }
            run = done.run;
        }
        Ok(outputs)
    }
}

/// Ops see parameters as they are now, however they came there.
pub fn parameters_that_change_are_seen(subject: &Subject) {
    subject.agree(&Changing);
}

/// Batches of falling and rising size through one set of buffers.
#[derive(Debug)]
struct Batches;

impl Case for Batches {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, wide) = (Shape::new(4, 6, 6, 8), Shape::new(4, 6, 6, 16));
        let mut ops = bench.ops(4, ALONE);
        let (x, y, z) = (ops.draw("x", shape), ops.draw("y", wide), ops.draw("z", wide));
        let (w, dw) = (ops.weights("w", CONV.weights()), ops.numbers(Arena::Gradients, "dw", CONV.weights()));
        let [gamma, beta] = ["gamma", "beta"].map(|name| ops.numbers(Arena::Parameters, name, 16));
        let saved = ops.numbers(Arena::Statistics, "saved", 32);
        let sums = ops.numbers(Arena::Gradients, "sums", 32);
        ops.set(Conv2dForward { conv: CONV, act: Activation::None }, [x, w], [y]);
        let bn = BatchNorm { epsilon: 1e-3, act: Activation::None };
        ops.set(BatchNormTrain { bn }, [y, gamma, beta], [z, saved, sums]);
        ops.set(Conv2dWeightGradient { conv: CONV, bias: false }, [x, y], [dw]);
        let (mut started, mut outputs) = (ops.start()?, Vec::new());
        for n in [4, 1, 0, 3, 4] {
            started.run.run(&StepArgs::inference(n))?;
            started.n = n;
            for (name, id) in [("y", y), ("dw", dw)] {
                outputs.push(started.output(id, name, TOLERANCE)?.of_products());
            }
            outputs.push(started.output(z, "z", TOLERANCE)?.of_shifted_products());
        }
        Ok(outputs)
    }
}

/// A last batch is shorter.
pub fn batches_of_changing_size(subject: &Subject) {
    subject.agree(&Batches);
}
