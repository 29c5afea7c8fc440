use super::activation::before_activation;
use super::{and_activation, per_channel};
use crate::conv::windows;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, BatchNorm, Conv2d, Error, Misfit, Pad, Result, Shape, Step};

/// A depthwise convolution: each input channel has filters of its own.
///
/// `y[n, i, j, c * m + k] = b[c * m + k] + sum over u, v of
/// x[n, i*sy + u*dy - top, j*sx + v*dx - left, c] * w[u, v, c, k]`, for `m` filters a channel. Keras calls `m` the depth
/// multiplier and stores the weights in this order; for PyTorch this is a `Conv2d` with a group for each input channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depthwise {
    /// Input channels, `c`.
    pub inputs: usize,
    /// Filters of each channel, `m`.
    pub multiplier: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Zeros around the input.
    pub pad: Pad,
}

impl Depthwise {
    /// A weight for each of so many channels: windows of one pixel.
    pub fn per_channel(inputs: usize) -> Self {
        let one = [1; 2];
        Depthwise { inputs, multiplier: 1, kernel: one, stride: one, dilation: one, pad: Pad::VALID }
    }

    /// Output channels: `c * m`, saturating as a shape's counts do.
    pub const fn outputs(&self) -> usize {
        self.inputs.saturating_mul(self.multiplier)
    }

    /// Elements of the kernel.
    pub const fn taps(&self) -> usize {
        self.kernel[0].saturating_mul(self.kernel[1])
    }

    /// Elements of the weights: `kh * kw * c * m`.
    pub const fn weights(&self) -> usize {
        self.taps().saturating_mul(self.outputs())
    }

    /// The same as a convolution with a group for each input channel.
    pub fn grouped(&self) -> Conv2d {
        let Depthwise { inputs, kernel, stride, dilation, pad, .. } = *self;
        Conv2d { stride, dilation, pad, groups: inputs, ..Conv2d::new(inputs, self.outputs(), kernel) }
    }

    /// Rows and columns under the kernel; 0 where there are none.
    pub fn extent(&self) -> [usize; 2] {
        [0, 1].map(|axis| match (self.kernel[axis], self.dilation[axis]) {
            (0, _) | (_, 0) => 0,
            (kernel, dilation) => (kernel - 1).saturating_mul(dilation).saturating_add(1),
        })
    }

    /// The output's shape for an input of shape `x`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the channels differ, [`Error::Window`] if the kernel does not fit into the padded input.
    pub fn output(&self, x: Shape) -> Result<Shape> {
        let (op, kernel) = ("depthwise_conv2d", self.extent());
        Error::check_shape(op, "the input", x, x.with_c(self.inputs))?;
        let [h, w] = windows(x.h, x.w, kernel, self.stride, self.pad).ok_or(Misfit {
            op,
            what: "the kernel with its dilation",
            kernel,
            stride: self.stride,
            input: [x.h, x.w],
            pad: self.pad,
            accepted: "from 1x1 to the padded input, of less than 2^32 pixels, and moved by at least 1x1",
        })?;
        Ok(Shape::new(x.n, h, w, self.outputs()))
    }

    /// Multiply-adds for an input of this shape, forward; each of the two backward passes has as many.
    pub fn multiply_adds(&self, x: Shape) -> usize {
        self.output(x).map_or(0, |y| y.rows().saturating_mul(self.weights()))
    }
}

/// `y = act(depthwise(x, w) + b)`. Reads x, w and, if there is one, b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseForward {
    /// The convolution.
    pub conv: Depthwise,
    /// What follows it.
    pub act: Activation,
}

/// A depthwise convolution and the batch normalization that alone reads it, in inference. Reads x, w, gamma, beta, mean, variance
/// and, if there is one, the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseNormalized {
    /// The convolution.
    pub conv: Depthwise,
    /// The normalization.
    pub bn: BatchNorm,
}

/// The gradient of a depthwise convolution's input. Reads dy, before the activation, and w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseInputGradient {
    /// The convolution.
    pub conv: Depthwise,
    /// The input's shape.
    pub x: Shape,
}

/// The gradients of a depthwise convolution's kernel and, if it has one, its bias. Reads x, and dy before the activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthwiseWeightGradient {
    /// The convolution.
    pub conv: Depthwise,
    /// Whether there is a bias.
    pub bias: bool,
}

signatures! {
    DepthwiseForward { x: batch "the input", w: parameter "the weights"; b: parameter "the bias" }
    DepthwiseNormalized {
        x: batch "the input", w: parameter "the weights", gamma: parameter "gamma", beta: parameter "beta",
        mean: average "the mean", var: average "the variance"; b: parameter "the bias"
    }
    DepthwiseInputGradient { dy: batch "dy", w: parameter "the weights" }
    DepthwiseWeightGradient { x: batch "the input", dy: batch "dy" } -> {
        dw: gradient "the gradient of the weights"; db: gradient "the gradient of the bias"
    }
}

fn options(conv: &Depthwise) -> String {
    let pair = |name: &str, [a, b]: [usize; 2]| match [a, b] {
        [1, 1] => String::new(),
        _ if a == b => format!(", {name} {a}"),
        _ => format!(", {name} {a}x{b}"),
    };
    let [kh, kw] = conv.kernel;
    let Pad { top, bottom, left, right } = conv.pad;
    let pad = match conv.pad {
        Pad::VALID => String::new(),
        _ if [bottom, left, right] == [top; 3] => format!(", pad {top}"),
        _ => format!(", pad {top} {bottom} {left} {right}"),
    };
    let filters = if conv.multiplier == 1 { String::new() } else { format!(", {} filters", conv.multiplier) };
    let (stride, dilation) = (pair("stride", conv.stride), pair("dilation", conv.dilation));
    format!("{kh}x{kw}{stride}{dilation}{pad}{filters}")
}

/// Checks kernel and bias, and gives the output's shape.
fn output(op: &'static str, conv: &Depthwise, x: Shape, w: Shape, b: Option<Shape>) -> Result<Shape> {
    let y = conv.output(x)?;
    Error::check_shape(op, "the weights", w, Shape::vectors(1, conv.weights()))?;
    b.map_or(Ok(()), |b| per_channel(op, "the bias", b, y.c))?;
    Ok(y)
}

impl Rule for DepthwiseForward {
    fn name(&self) -> &'static str {
        "depthwise_conv2d"
    }

    fn options(&self) -> String {
        options(&self.conv) + &and_activation(self.act)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::DepthwiseForward { x, w, b } = self.operands_of(shapes)?;
        Ok(vec![output(self.name(), &self.conv, x, w, b)?])
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }

    fn fused_activation(&mut self) -> Option<&mut Activation> {
        Some(&mut self.act)
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (operands::DepthwiseForward { x, w, b }, super::results::Output { y }) = self.bind(step)?;
        let dy = before_activation(self.act, y, to.of(step), to)?;
        if to.wants(w) || b.is_some_and(|b| to.wants(b)) {
            let op = DepthwiseWeightGradient { conv: self.conv, bias: b.is_some() };
            let given = to.of_parameters(&step.operands[1..])?;
            to.push(op, &[x, dy], &given)?;
        }
        to.add_op(x, DepthwiseInputGradient { conv: self.conv, x: to.shape(x) }, &[dy, w])
    }
}

impl Rule for DepthwiseNormalized {
    fn name(&self) -> &'static str {
        "depthwise_conv2d_batch_norm"
    }

    fn options(&self) -> String {
        options(&self.conv) + &and_activation(self.bn.act)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::DepthwiseNormalized { x, w, gamma, beta, mean, var, b } = self.operands_of(shapes)?;
        let y = output(self.name(), &self.conv, x, w, b)?;
        let runs = [("gamma", gamma), ("beta", beta), ("the mean", mean), ("the variance", var)];
        runs.into_iter().try_for_each(|(what, run)| per_channel(self.name(), what, run, y.c))?;
        Ok(vec![y])
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}

impl Rule for DepthwiseInputGradient {
    fn name(&self) -> &'static str {
        "depthwise_conv2d_input_gradient"
    }

    fn options(&self) -> String {
        options(&self.conv)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::DepthwiseInputGradient { dy, w } = self.operands_of(shapes)?;
        let y = output(self.name(), &self.conv, self.x, w, None)?;
        Error::check_shape(self.name(), "dy", dy, y)?;
        Ok(vec![self.x])
    }

    fn adds(&self) -> bool {
        true
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.conv.multiply_adds(self.x)
    }
}

impl Rule for DepthwiseWeightGradient {
    fn name(&self) -> &'static str {
        "depthwise_conv2d_weight_gradient"
    }

    fn options(&self) -> String {
        options(&self.conv)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::DepthwiseWeightGradient { x, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, self.conv.output(x)?)?;
        let bias = self.bias.then(|| Shape::vectors(1, dy.c));
        Ok([Shape::vectors(1, self.conv.weights())].into_iter().chain(bias).collect())
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}
