//! Depthwise convolutions: forward with activation, behind a normalization, and both backward passes.

use crate::convolution::{TOLERANCE, running_norm};
use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{
    Depthwise, DepthwiseForward, DepthwiseInputGradient, DepthwiseNormalized, DepthwiseWeightGradient,
};
use towers_program::{Activation, Arena, BatchNorm, Pad, Result, Shape, Write, operands, results};

/// A depthwise convolution forward and backward, with its fused activation, and with a normalization in inference.
#[derive(Clone, Debug)]
pub struct Channels {
    /// The operator.
    pub conv: Depthwise,
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// What follows.
    pub act: Activation,
    /// Whether there is one.
    pub bias: bool,
    /// How the input's gradient is written.
    pub mode: Write,
}

impl Case for Channels {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (conv, act, shape) = (self.conv, self.act, self.conv.output(self.shape)?);
        let mut ops = bench.ops(self.shape.n, self.place);
        let (x, dy) = (ops.draw("x", self.shape), ops.draw("dy", shape));
        let (y, dx, of_inference) =
            (ops.draw("y", shape), ops.draw("dx", self.shape), ops.draw("y of inference", shape));
        let (len, c) = (conv.weights(), conv.outputs());
        let (w, dw) = (ops.weights("w", len), ops.numbers(Arena::Gradients, "dw", len));
        let (b, db) = (ops.weights("b", c), ops.numbers(Arena::Gradients, "db", c));
        let b = self.bias.then_some(b);
        let gradients = results::DepthwiseWeightGradient { dw, db: self.bias.then_some(db) };
        ops.set(DepthwiseForward { conv, act }, operands::DepthwiseForward { x, w, b }, [y]);
        ops.write(DepthwiseInputGradient { conv, x: self.shape.with_n(1) }, [dy, w], [dx], self.mode);
        ops.set(DepthwiseWeightGradient { conv, bias: self.bias }, [x, dy], gradients);
        let bn = BatchNorm { epsilon: 1e-3, act };
        let [gamma, beta, mean, var] = running_norm(&mut ops, c);
        let normalized = operands::DepthwiseNormalized { x, w, gamma, beta, mean, var, b };
        ops.set(DepthwiseNormalized { conv, bn }, normalized, [of_inference]);
        let done = ops.run()?;
        let mut outputs = vec![done.output(y, "y", TOLERANCE)?, done.output(dx, "dx", TOLERANCE)?];
        for (gradient, name) in Vec::from(gradients).into_iter().zip(["dw", "db"]) {
            outputs.push(done.output(gradient, name, TOLERANCE)?);
        }
        outputs.push(done.output(of_inference, "y of inference", TOLERANCE)?);
        Ok(outputs)
    }
}

fn same(inputs: usize, kernel: usize, stride: usize) -> Depthwise {
    let pad = Pad::same(99, 99, [kernel; 2], [1; 2]);
    Depthwise { inputs, multiplier: 1, kernel: [kernel; 2], stride: [stride; 2], dilation: [1; 2], pad }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks(subject: &Subject) {
    let layers = [
        (same(32, 3, 1), 2, 28),
        (same(96, 3, 2), 1, 15),
        (same(144, 5, 1), 2, 14),
        (same(40, 5, 2), 1, 14),
        (same(64, 7, 1), 1, 14),
        (same(200, 3, 1), 3, 7),
        (Depthwise { multiplier: 2, ..same(12, 3, 1) }, 2, 9),
        (Depthwise { dilation: [2; 2], ..same(32, 3, 1) }, 1, 12),
        (same(24, 1, 1), 2, 7),
    ];
    for (k, (conv, n, side)) in layers.into_iter().enumerate() {
        let shape = subject.fit(Shape::new(n, side, side, conv.inputs), conv.weights());
        let case =
            Channels { conv, shape, place: ALONE, act: Activation::Relu, bias: true, mode: Write::Set };
        let slice = Channels { place: SLICE, bias: false, mode: Write::Add, ..case.clone() };
        let wide = Channels { place: WIDE_SLICE, mode: Write::Add, ..case.clone() };
        subject.variants(k, [case, slice, wide]).for_each(|case| subject.agree(&case));
    }
}

/// Sizes, strides, dilations, paddings and places at random.
#[cfg(feature = "random")]
pub fn any_convolution(subject: &Subject) {
    let sizes = (0..4_usize, 1..13_usize, 1..13_usize, 1..40_usize, 1..4_usize);
    let pair = |most: usize| prop::array::uniform2(1..most);
    let windows = (pair(8), pair(4), pair(4));
    let pads = (0..4_usize, 0..4_usize, 0..4_usize, 0..4_usize);
    let rest = (placement(), write_mode(), activation_of_sums(), any::<bool>());
    let cases =
        (sizes, windows, pads, rest).prop_filter_map("the kernel fits", |(sizes, windows, pads, rest)| {
            let ((n, h, w, inputs, multiplier), (kernel, stride, dilation)) = (sizes, windows);
            let ((top, bottom, left, right), (place, mode, act, bias)) = (pads, rest);
            let pad = Pad { top, bottom, left, right };
            let conv = Depthwise { inputs, multiplier, kernel, stride, dilation, pad };
            let shape = Shape::new(n, h, w, inputs);
            conv.output(shape).is_ok().then_some(Channels { conv, shape, place, act, bias, mode })
        });
    subject.agree_on(96, cases);
}

/// No samples: nothing is written but gradients, which are 0.
pub fn an_empty_batch(subject: &Subject) {
    for (mode, bias) in [(Write::Set, true), (Write::Add, false)] {
        let (conv, shape, place) = (same(8, 3, 1), Shape::new(0, 5, 5, 8), WIDE_SLICE);
        subject.agree(&Channels { conv, shape, place, act: Activation::Relu, bias, mode });
    }
}

/// A NaN in one pixel.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (conv, shape) = (same(8, 3, 1), Shape::new(1, 6, 6, 8));
        let mut ops = bench.ops(1, ALONE);
        let x = ops.tensor(&Operand::draw("x", shape, ALONE).with(3, f32::NAN));
        let (y, w) = (ops.draw("y", shape), ops.weights("w", conv.weights()));
        ops.set(DepthwiseForward { conv, act: Activation::Relu }, [x, w], [y]);
        let y = ops.run()?.output(y, "y", TOLERANCE)?;
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 4, "all that see the NaN");
        Ok(vec![y])
    }
}

/// A NaN comes through the fused activation, so that a diverged run is seen.
pub fn nan_stays(subject: &Subject) {
    subject.agree(&Nan);
}
