//! Several ops in a row on one device: what one leaves behind must not reach the next.

use crate::convolution::{Convolution, TOLERANCE};
use crate::dense::Dense;
use crate::normalization::Normalization;
use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Activation, Backend, Conv2d, Linear, Pad, Result, SgdStep, Shape, Span, WeightSpans, Write};

const CONV: Conv2d = Conv2d {
    inputs: 8,
    outputs: 16,
    kernel: [3; 2],
    stride: [1; 2],
    pad: Pad { top: 1, bottom: 1, left: 1, right: 1 },
};
const POINTWISE: Conv2d = Conv2d { inputs: 16, outputs: 8, kernel: [1; 2], pad: Pad::VALID, ..CONV };

/// Ops of very different sizes, which share a device's scratch memory, one after the other.
#[derive(Debug)]
struct Scratch {
    backwards: bool,
}

impl Case for Scratch {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
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
pub fn the_order_of_ops_changes_no_bit<B: Backend>(subject: &Subject<B>) {
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
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, dense) = (bench.device, Linear { inputs: 24, outputs: 10 });
        let first = Span::new(3, CONV.weights());
        let bias = Span::new(first.end(), CONV.outputs);
        let between = Span::new(bias.end(), 32);
        let second = Span::new(between.end(), POINTWISE.weights());
        let last = Span::new(second.end() + 1, 240);
        let mut grads = bench.arena("grads", last.end() + 2)?;
        for step in ["one", "two"] {
            let draw = |name: &str, shape| Operand::draw(&format!("{name} {step}"), shape, ALONE).on(bench);
            let n = if step == "one" { 3 } else { 2 };
            let (image, wide) = (Shape::new(n, 5, 5, 8), Shape::new(n, 5, 5, 16));
            let (x, dy) = (draw("vectors", Shape::vectors(n, 24))?, draw("classes", Shape::vectors(n, 10))?);
            device.linear_bwd_filter(&dense, x.view(), dy.view(), grads.run_mut(last.into()))?;
            let (x, dy) = (draw("wide", wide)?, draw("narrow", image)?);
            device.conv2d_bwd_filter(&POINTWISE, x.view(), dy.view(), grads.run_mut(second.into()))?;
            device.fill(0.5, &mut grads.data, between)?;
            let (x, dy) = (draw("image", image)?, draw("features", wide)?);
            let weights = WeightSpans { w: first, b: Some(bias) };
            device.conv2d_bwd_filter(&CONV, x.view(), dy.view(), grads.run_mut(weights))?;
            // A bucket at a time, as replicas add them up, or all at once.
            let whole = Span::new(0, last.end());
            let split = Span::new(second.offset, whole.end() - second.offset);
            let runs = if step == "one" { vec![split, Span::new(0, second.offset)] } else { vec![whole] };
            runs.into_iter().try_for_each(|run| device.finish_grads(&mut grads.data, run))?;
        }
        let runs = [
            ("dw of the first", first, TOLERANCE),
            ("db of the first", bias, TOLERANCE),
            ("what lies between", between, 0.0),
            ("dw of the second", second, TOLERANCE),
            ("dw of the last", last, TOLERANCE),
        ];
        Ok(grads.outputs(bench, &runs)?.into_iter().map(Output::of_products).collect())
    }
}

/// `finish_grads` brings all gradients of a step into place, and those of the step before are gone.
pub fn finished_gradients_are_those_of_the_last_step<B: Backend>(subject: &Subject<B>) {
    subject.agree(&SharedArena);
}

/// A convolution and a dense layer with parameters that change in every way in which they can.
#[derive(Debug)]
struct Changing;

impl Case for Changing {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, linear) = (bench.device, Linear { inputs: 16, outputs: 24 });
        let w = Span::new(1, CONV.weights());
        let dense = Span::new(w.end() + 2, 16 * 24);
        let whole = Span::new(0, dense.end() + 1);
        let mut params = bench.weights("params", whole.len)?;
        let (grads, mut none) = (bench.arena_of(vec![bench.loss_scale; whole.len])?, device.alloc(0)?);
        let (image, wide) = (Shape::new(1, 4, 4, 8), Shape::new(1, 4, 4, 16));
        let (x, dy) =
            (Operand::draw("x", image, ALONE).on(bench)?, Operand::draw("dy", wide, ALONE).on(bench)?);
        let vectors = Operand::draw("vectors", Shape::vectors(3, 16), ALONE).on(bench)?;
        let mut outputs = Vec::new();
        for change in ["none", "upload", "step", "fill"] {
            match change {
                "upload" => {
                    let new: Vec<f32> =
                        numbers("other params", 100).into_iter().map(|x| bench.round(x)).collect();
                    device.upload(&new, &mut params.data, 40)?;
                }
                "step" => {
                    let (velocity, weight_decay) = (Default::default(), Default::default());
                    let step = SgdStep { lr: 0.25, momentum: 0.0, nesterov: false, velocity, weight_decay };
                    device.sgd_step(&step, &mut params.data, &grads.data, &mut none, whole)?;
                }
                "fill" => device.fill(0.5, &mut params.data, Span::new(100, whole.len - 200))?,
                _ => {}
            }
            let mut y = Operand::draw("y", wide, ALONE).on(bench)?;
            let mut dx = Operand::draw("dx", image, ALONE).on(bench)?;
            let mut z = Operand::draw("z", Shape::vectors(3, 24), ALONE).on(bench)?;
            device.conv2d_fwd(&CONV, Activation::None, x.view(), params.run(w.into()), y.view_mut())?;
            device.conv2d_bwd_data(&CONV, dy.view(), params.run(w), dx.view_mut(), Write::Set)?;
            device.linear_fwd(
                &linear,
                Activation::None,
                vectors.view(),
                params.run(dense.into()),
                z.view_mut(),
            )?;
            for (name, tensor) in [("y", &y), ("dx", &dx), ("z", &z)] {
                outputs.push(tensor.output(bench, name, TOLERANCE)?.of_products());
            }
        }
        Ok(outputs)
    }
}

/// Ops see parameters as they are now, however they came there.
pub fn parameters_that_change_are_seen<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Changing);
}

/// Batches of falling and rising size through one set of buffers.
#[derive(Debug)]
struct Batches;

impl Case for Batches {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let mut outputs = Vec::new();
        bench.device.prepare_conv2d(&CONV, Shape::new(4, 6, 6, 8), true)?;
        for n in [4, 1, 0, 3, 6] {
            let shape = Shape::new(n, 6, 6, 8);
            let (act, place, mode) = (Activation::Relu, ALONE, Write::Set);
            outputs.extend(Convolution { conv: CONV, shape, place, act, bias: true, mode }.run(bench)?);
            outputs.extend(Normalization { shape, place, act, mode, mean: 0.5 }.run(bench)?);
        }
        Ok(outputs)
    }
}

/// A last batch is shorter, and one may be longer than what was prepared for.
pub fn batches_of_changing_size<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Batches);
}
