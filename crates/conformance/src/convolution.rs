//! Convolutions: forward with activation, and both backward passes.

use crate::operand::*;
use crate::{Bench, Case, Ops, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{Conv2dForward, Conv2dInputGradient, Conv2dNormalized, Conv2dWeightGradient};
use towers_program::{
    Activation, Arena, BatchNorm, Conv2d, Pad, Result, Shape, TensorId, Write, operands, results,
};

/// A convolution forward and backward, with its fused activation, and with a normalization in inference.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// The operator.
    pub conv: Conv2d,
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

/// Sums of up to some thousand products, relative to the largest.
pub(crate) const TOLERANCE: f32 = 1e-5;

impl Case for Convolution {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (conv, act, shape) = (self.conv, self.act, self.conv.output(self.shape)?);
        let mut ops = bench.ops(self.shape.n, self.place);
        let (x, dy) = (ops.draw("x", self.shape), ops.draw("dy", shape));
        let (y, dx, of_inference) =
            (ops.draw("y", shape), ops.draw("dx", self.shape), ops.draw("y of inference", shape));
        let (len, c) = (conv.weights(), conv.outputs);
        let (w, dw) = (ops.weights("w", len), ops.numbers(Arena::Gradients, "dw", len));
        let (b, db) = (ops.weights("b", c), ops.numbers(Arena::Gradients, "db", c));
        let b = self.bias.then_some(b);
        let gradients = results::Conv2dWeightGradient { dw, db: self.bias.then_some(db) };
        ops.set(Conv2dForward { conv, act }, operands::Conv2dForward { x, w, b }, [y]);
        ops.write(Conv2dInputGradient { conv, x: self.shape.with_n(1) }, [dy, w], [dx], self.mode);
        ops.set(Conv2dWeightGradient { conv, bias: self.bias }, [x, dy], gradients);
        let bn = BatchNorm { epsilon: 1e-3, act };
        let [gamma, beta, mean, var] = running_norm(&mut ops, c);
        let normalized = operands::Conv2dNormalized { x, w, gamma, beta, mean, var, b };
        ops.set(Conv2dNormalized { conv, bn }, normalized, [of_inference]);
        let done = ops.run()?;
        let mut outputs = vec![done.output(y, "y", TOLERANCE)?, done.output(dx, "dx", TOLERANCE)?];
        for (gradient, name) in Vec::from(gradients).into_iter().zip(["dw", "db"]) {
            outputs.push(done.output(gradient, name, TOLERANCE)?);
        }
        outputs = outputs.into_iter().map(Output::of_products).collect();
        outputs.push(done.output(of_inference, "y of inference", TOLERANCE)?.of_shifted_products());
        Ok(outputs)
    }
}

/// Gamma, beta, mean and variance, as in inference.
pub(crate) fn running_norm(ops: &mut Ops, c: usize) -> [TensorId; 4] {
    let variance: Vec<f32> = numbers("variance", c).into_iter().map(f32::abs).collect();
    [
        ops.numbers(Arena::Parameters, "gamma", c),
        ops.numbers(Arena::Parameters, "beta", c),
        ops.numbers(Arena::Averages, "mean", c),
        ops.run_of(Arena::Averages, &variance),
    ]
}

fn same(inputs: usize, outputs: usize, kernel: usize) -> Conv2d {
    let pad = Pad::same(99, 99, [kernel; 2], [1; 2]);
    Conv2d { pad, ..Conv2d::new(inputs, outputs, [kernel; 2]) }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks(subject: &Subject) {
    let downsample = Conv2d { stride: [2; 2], pad: Pad::VALID, ..same(80, 80, 3) };
    let layers = [
        (same(3, 96, 3), 2, 32),
        (same(96, 32, 1), 2, 32),
        (same(80, 48, 3), 1, 15),
        (downsample, 1, 15),
        (same(240, 160, 3), 2, 7),
        (same(32, 32, 3), 3, 13),
    ];
    for (k, (conv, n, side)) in layers.into_iter().enumerate() {
        let shape = subject.fit(Shape::new(n, side, side, conv.inputs), conv.weights());
        let case =
            Convolution { conv, shape, place: ALONE, act: Activation::Relu, bias: true, mode: Write::Set };
        let slice = Convolution { place: SLICE, bias: false, mode: Write::Add, ..case.clone() };
        let wide = Convolution { place: WIDE_SLICE, mode: Write::Add, ..case.clone() };
        subject.variants(k, [case, slice, wide]).for_each(|case| subject.agree(&case));
    }
}

/// Groups of few and of many channels, and kernels with gaps.
pub fn groups_and_dilation(subject: &Subject) {
    let wide = |groups, dilation, conv| Conv2d { groups, dilation: [dilation; 2], ..conv };
    for (conv, n, side) in [
        (wide(8, 1, same(32, 32, 3)), 2, 14),
        (wide(13, 1, Conv2d { stride: [2; 2], ..same(104, 104, 3) }), 2, 7),
        (wide(2, 1, same(48, 96, 5)), 1, 9),
        (wide(3, 1, same(24, 48, 1)), 2, 6),
        (wide(6, 2, same(6, 12, 3)), 2, 9),
        (wide(1, 3, Conv2d { stride: [2; 2], ..same(20, 24, 3) }), 2, 11),
    ] {
        let shape = subject.fit(Shape::new(n, side, side, conv.inputs), conv.weights());
        let case =
            Convolution { conv, shape, place: ALONE, act: Activation::Relu, bias: true, mode: Write::Set };
        subject.agree(&case);
        subject.agree(&Convolution { place: WIDE_SLICE, bias: false, mode: Write::Add, ..case });
    }
}

/// Sizes, strides, dilations, groups, paddings and places at random.
#[cfg(feature = "random")]
pub fn any_convolution(subject: &Subject) {
    let sizes = (0..4_usize, 1..11_usize, 1..11_usize, 1..24_usize, 1..40_usize);
    let two = |range| prop::array::uniform2(range);
    // As often as not without dilation and without groups.
    let dilation = prop_oneof![Just([1; 2]), two(1..4_usize)];
    let groups = prop_oneof![Just(1), 1..7_usize];
    let windows = (two(1..5_usize), two(1..4_usize), dilation, groups);
    let pads = (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let rest = (placement(), write_mode(), activation_of_sums(), any::<bool>());
    let cases =
        (sizes, windows, pads, rest).prop_filter_map("the kernel fits", |(sizes, windows, pads, rest)| {
            let ((n, h, w, inputs, outputs), (kernel, stride, dilation, groups)) = (sizes, windows);
            let ((top, bottom, left, right), (place, mode, act, bias)) = (pads, rest);
            let [inputs, outputs] = [inputs, outputs].map(|channels| channels.div_ceil(groups) * groups);
            let conv = Conv2d {
                stride,
                dilation,
                groups,
                pad: Pad { top, bottom, left, right },
                ..Conv2d::new(inputs, outputs, kernel)
            };
            let shape = Shape::new(n, h, w, inputs);
            conv.output(shape).is_ok().then_some(Convolution { conv, shape, place, act, bias, mode })
        });
    subject.agree_on(96, cases);
}

/// No samples: nothing is written but gradients, which are 0.
pub fn an_empty_batch(subject: &Subject) {
    for (mode, bias) in [(Write::Set, true), (Write::Add, false)] {
        let (conv, shape, place) = (same(8, 16, 3), Shape::new(0, 5, 5, 8), WIDE_SLICE);
        subject.agree(&Convolution { conv, shape, place, act: Activation::Relu, bias, mode });
    }
}

/// A NaN in one pixel.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (conv, shape) = (same(8, 8, 3), Shape::new(1, 6, 6, 8));
        let mut ops = bench.ops(1, ALONE);
        let x = ops.tensor(&Operand::draw("x", shape, ALONE).with(3, f32::NAN));
        let (y, w) = (ops.draw("y", shape), ops.weights("w", conv.weights()));
        ops.set(Conv2dForward { conv, act: Activation::Relu }, [x, w], [y]);
        let y = ops.run()?.output(y, "y", TOLERANCE)?.of_products();
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 4 * 8, "all that see the NaN");
        Ok(vec![y])
    }
}

/// A NaN comes through the fused activation, so that a diverged run is seen.
pub fn nan_stays(subject: &Subject) {
    subject.agree(&Nan);
}
