use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Activation, Backend, Conv2d, Linear, Pad, Result, Shape, Span, Write};

/// A convolution forward and backward, with its fused activation.
#[derive(Debug)]
struct Case {
    conv: Conv2d,
    shape: Shape,
    place: Placement,
    act: Activation,
    bias: bool,
    mode: Write,
}

/// Sums of up to some thousand products, relative to the largest.
const TOLERANCE: f32 = 1e-5;

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let (conv, shape) = (&self.conv, self.conv.output(self.shape)?);
        let (w, b) = (Span::new(2, conv.weights()), Span::new(2 + conv.weights(), conv.outputs));
        let bias = self.bias.then_some(b);
        let params = upload(device, &numbers("params", b.end() + 1))?;
        let mut grads = upload(device, &numbers("grads", b.end() + 1))?;
        let x = Operand::draw("x", self.shape, self.place).on(device)?;
        let dy = Operand::draw("dy", shape, self.place).on(device)?;
        let mut y = Operand::draw("y", shape, self.place).on(device)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(device)?;
        device.prepare_conv2d(conv, self.shape, true)?;
        device.conv2d_fwd(conv, self.act, x.view(), &params, w, bias, y.view_mut())?;
        device.conv2d_bwd_data(conv, dy.view(), &params, w, dx.view_mut(), self.mode)?;
        device.conv2d_bwd_filter(conv, x.view(), dy.view(), &mut grads, w, bias)?;
        Ok(vec![
            y.output(device, "y", TOLERANCE)?,
            dx.output(device, "dx", TOLERANCE)?,
            Output("dw", download(device, &grads, Span::new(0, w.end()))?, TOLERANCE),
            Output("db", download(device, &grads, Span::new(b.offset, b.len + 1))?, TOLERANCE),
        ])
    }
}

fn same(inputs: usize, outputs: usize, kernel: usize) -> Conv2d {
    let pad = Pad::same(99, 99, [kernel; 2], [1; 2]);
    Conv2d { inputs, outputs, kernel: [kernel; 2], stride: [1; 2], pad }
}

#[test]
fn layers_of_real_networks() {
    let downsample = Conv2d { stride: [2; 2], pad: Pad::VALID, ..same(80, 80, 3) };
    for (conv, n, side) in [
        (same(3, 96, 3), 2, 32),
        (same(96, 32, 1), 2, 32),
        (same(80, 48, 3), 1, 15),
        (downsample, 1, 15),
        (same(240, 160, 3), 2, 7),
        (same(32, 32, 3), 3, 13),
    ] {
        let shape = Shape::new(n, side, side, conv.inputs);
        let case = Case { conv, shape, place: ALONE, act: Activation::Relu, bias: true, mode: Write::Set };
        agree(&case);
        agree(&Case { place: SLICE, bias: false, mode: Write::Add, ..case });
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn any_convolution(
        (n, h, w, inputs, outputs) in (0..4_usize, 1..11_usize, 1..11_usize, 1..24_usize, 1..40_usize),
        kernel in prop::array::uniform2(1..5_usize),
        stride in prop::array::uniform2(1..4_usize),
        (top, bottom, left, right) in (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize),
        place in placement(),
        mode in write_mode(),
        (relu, bias) in any::<(bool, bool)>(),
    ) {
        let conv = Conv2d { inputs, outputs, kernel, stride, pad: Pad { top, bottom, left, right } };
        let shape = Shape::new(n, h, w, inputs);
        prop_assume!(conv.output(shape).is_ok());
        let act = if relu { Activation::Relu } else { Activation::None };
        agree(&Case { conv, shape, place, act, bias, mode });
    }
}

/// A dense layer forward and backward.
#[derive(Debug)]
struct Dense {
    linear: Linear,
    samples: usize,
    place: Placement,
    act: Activation,
    bias: bool,
    mode: Write,
}

impl crate::harness::Case for Dense {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let linear = &self.linear;
        let (x, y) =
            (Shape::vectors(self.samples, linear.inputs), Shape::vectors(self.samples, linear.outputs));
        let weights = linear.inputs * linear.outputs;
        let (w, b) = (Span::new(1, weights), Span::new(1 + weights, linear.outputs));
        let bias = self.bias.then_some(b);
        let params = upload(device, &numbers("params", b.end() + 1))?;
        let mut grads = upload(device, &numbers("grads", b.end() + 1))?;
        let (mut dx, dy) =
            (Operand::draw("dx", x, self.place).on(device)?, Operand::draw("dy", y, self.place).on(device)?);
        let (x, mut y) =
            (Operand::draw("x", x, self.place).on(device)?, Operand::draw("y", y, self.place).on(device)?);
        device.linear_fwd(linear, self.act, x.view(), &params, w, bias, y.view_mut())?;
        device.linear_bwd_data(linear, dy.view(), &params, w, dx.view_mut(), self.mode)?;
        device.linear_bwd_filter(linear, x.view(), dy.view(), &mut grads, w, bias)?;
        Ok(vec![
            y.output(device, "y", TOLERANCE)?,
            dx.output(device, "dx", TOLERANCE)?,
            Output("dw", download(device, &grads, Span::new(0, w.end()))?, TOLERANCE),
            Output("db", download(device, &grads, Span::new(b.offset, b.len + 1))?, TOLERANCE),
        ])
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn any_dense_layer(
        (samples, inputs, outputs) in (0..40_usize, 1..300_usize, 1..70_usize),
        place in placement(),
        mode in write_mode(),
        (relu, bias) in any::<(bool, bool)>(),
    ) {
        let act = if relu { Activation::Relu } else { Activation::None };
        agree(&Dense { linear: Linear { inputs, outputs }, samples, place, act, bias, mode });
    }
}
