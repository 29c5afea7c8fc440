//! Convolutions: forward with activation, and both backward passes.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, NormInfer, NormSpans, Pad, Result, Run, Shape, Span,
    WeightSpans, Write,
};
use proptest::prelude::*;

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
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, conv, shape) = (bench.device, &self.conv, self.conv.output(self.shape)?);
        let (w, b) = (Span::new(2, conv.weights()), Span::new(2 + conv.weights(), conv.outputs));
        let weights = WeightSpans { w, b: self.bias.then_some(b) };
        let c = conv.outputs;
        let (gamma, beta) = (Span::new(b.end(), c), Span::new(b.end() + c, c));
        let params = bench.weights("params", beta.end() + 1)?;
        let mut grads = bench.arena("grads", b.end() + 1)?;
        let x = Operand::draw("x", self.shape, self.place).on(bench)?;
        let dy = Operand::draw("dy", shape, self.place).on(bench)?;
        let mut y = Operand::draw("y", shape, self.place).on(bench)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(bench)?;
        device.prepare_conv2d(conv, self.shape, true)?;
        device.conv2d_fwd(conv, self.act, x.view(), params.run(weights), y.view_mut())?;
        device.conv2d_bwd_data(conv, dy.view(), params.run(w), dx.view_mut(), self.mode)?;
        device.conv2d_bwd_filter(conv, x.view(), dy.view(), grads.run_mut(weights))?;
        device.finish_grads(&mut grads.data, w)?;
        let runs = [("dw", w, TOLERANCE), ("db", b, TOLERANCE)];
        let grads = grads.outputs(bench, &runs[..1 + usize::from(self.bias)])?;
        let mut outputs = vec![y.output(bench, "y", TOLERANCE)?, dx.output(bench, "dx", TOLERANCE)?];
        let running = bench.arena_of(numbers("running", 2 * c).into_iter().map(f32::abs).collect())?;
        let (mean, var) = (Span::new(0, c), Span::new(c, c));
        let at = NormSpans { affine: AffineSpans { gamma, beta }, mean, var };
        let (params, running) = (&params.data, &running.data);
        let (norm, weights) = (NormInfer { params, running, at }, Run::new(params, weights));
        let bn = BatchNorm { epsilon: 1e-3, act: self.act };
        device.conv2d_bn_act_fwd_infer(conv, &bn, x.view(), weights, norm, y.view_mut())?;
        outputs.extend(grads);
        outputs = outputs.into_iter().map(Output::of_products).collect();
        outputs.push(y.output(bench, "y of inference", TOLERANCE)?.of_shifted_products());
        Ok(outputs)
    }
}

fn same(inputs: usize, outputs: usize, kernel: usize) -> Conv2d {
    let pad = Pad::same(99, 99, [kernel; 2], [1; 2]);
    Conv2d { inputs, outputs, kernel: [kernel; 2], stride: [1; 2], pad }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks<B: Backend>(subject: &Subject<B>) {
    let downsample = Conv2d { stride: [2; 2], pad: Pad::VALID, ..same(80, 80, 3) };
    for (conv, n, side) in [
        (same(3, 96, 3), 2, 32),
        (same(96, 32, 1), 2, 32),
        (same(80, 48, 3), 1, 15),
        (downsample, 1, 15),
        (same(240, 160, 3), 2, 7),
        (same(32, 32, 3), 3, 13),
    ] {
        let shape = subject.fit(Shape::new(n, side, side, conv.inputs), conv.weights());
        let case =
            Convolution { conv, shape, place: ALONE, act: Activation::Relu, bias: true, mode: Write::Set };
        subject.agree(&case);
        subject.agree(&Convolution { place: SLICE, bias: false, mode: Write::Add, ..case.clone() });
        subject.agree(&Convolution { place: WIDE_SLICE, mode: Write::Add, ..case });
    }
}

/// Sizes, strides, paddings and places at random.
pub fn any_convolution<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..4_usize, 1..11_usize, 1..11_usize, 1..24_usize, 1..40_usize);
    let windows = (prop::array::uniform2(1..5_usize), prop::array::uniform2(1..4_usize));
    let pads = (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let rest = (placement(), write_mode(), activation(), any::<bool>());
    let cases =
        (sizes, windows, pads, rest).prop_filter_map("the kernel fits", |(sizes, windows, pads, rest)| {
            let ((n, h, w, inputs, outputs), (kernel, stride)) = (sizes, windows);
            let ((top, bottom, left, right), (place, mode, act, bias)) = (pads, rest);
            let conv = Conv2d { inputs, outputs, kernel, stride, pad: Pad { top, bottom, left, right } };
            let shape = Shape::new(n, h, w, inputs);
            conv.output(shape).is_ok().then_some(Convolution { conv, shape, place, act, bias, mode })
        });
    subject.agree_on(96, cases);
}

/// No samples: nothing is written but gradients, which are 0.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    for (mode, bias) in [(Write::Set, true), (Write::Add, false)] {
        let (conv, shape, place) = (same(8, 16, 3), Shape::new(0, 5, 5, 8), WIDE_SLICE);
        subject.agree(&Convolution { conv, shape, place, act: Activation::Relu, bias, mode });
    }
}

/// A NaN in one pixel.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (conv, shape) = (same(8, 8, 3), Shape::new(1, 6, 6, 8));
        let x = Operand::draw("x", shape, ALONE).with(3, f32::NAN).on(bench)?;
        let mut y = Operand::draw("y", shape, ALONE).on(bench)?;
        let params = bench.weights("params", conv.weights())?;
        let w = Span::new(0, conv.weights());
        bench.device.conv2d_fwd(&conv, Activation::Relu, x.view(), params.run(w.into()), y.view_mut())?;
        let y = y.output(bench, "y", TOLERANCE)?.of_products();
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 4 * 8, "all that see the NaN");
        Ok(vec![y])
    }
}

/// A NaN comes through the fused activation, so that a diverged run is seen.
pub fn nan_stays<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Nan);
}
