use super::activation::before_activation;
use super::{Op, and_activation, per_channel};
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, BatchNorm, Conv2d, Error, Pad, Result, Shape, Step};

/// `y = act(conv(x, w) + b)`. Reads x, w and, if there is one, b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dForward {
    /// The convolution.
    pub conv: Conv2d,
    /// What follows it.
    pub act: Activation,
}

/// A convolution and the batch normalization that alone reads it, in inference: one op, no tensor in between. Reads x, w, gamma, beta, mean,
/// variance and, if there is one, the bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dNormalized {
    /// The convolution.
    pub conv: Conv2d,
    /// The normalization.
    pub bn: BatchNorm,
}

/// The gradient of a convolution's input. Reads dy, before the activation, and w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dInputGradient {
    /// The convolution.
    pub conv: Conv2d,
    /// The input's shape.
    pub x: Shape,
}

/// The gradients of a convolution's kernel and, if it has one, its bias. Reads x, and dy before the activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dWeightGradient {
    /// The convolution.
    pub conv: Conv2d,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Op {
    /// The convolution that the op computes, or a gradient of it.
    pub fn conv(&self) -> Option<&Conv2d> {
        match self {
            Op::Conv2dForward(Conv2dForward { conv, .. })
            | Op::Conv2dNormalized(Conv2dNormalized { conv, .. })
            | Op::Conv2dInputGradient(Conv2dInputGradient { conv, .. })
            | Op::Conv2dWeightGradient(Conv2dWeightGradient { conv, .. }) => Some(conv),
            _ => None,
        }
    }
}

signatures! {
    Conv2dForward { x: batch "the input", w: parameter "the weights"; b: parameter "the bias" }
    Conv2dNormalized {
        x: batch "the input", w: parameter "the weights", gamma: parameter "gamma", beta: parameter "beta",
        mean: average "the mean", var: average "the variance"; b: parameter "the bias"
    }
    Conv2dInputGradient { dy: batch "dy", w: parameter "the weights" }
    Conv2dWeightGradient { x: batch "the input", dy: batch "dy" } -> {
        dw: gradient "the gradient of the weights"; db: gradient "the gradient of the bias"
    }
}

fn options(conv: &Conv2d) -> String {
    let [kh, kw] = conv.kernel;
    let stride = match conv.stride {
        [1, 1] => String::new(),
        [sh, sw] if sh == sw => format!(", stride {sh}"),
        [sh, sw] => format!(", stride {sh}x{sw}"),
    };
    let Pad { top, bottom, left, right } = conv.pad;
    let pad = match conv.pad {
        Pad::VALID => String::new(),
        _ if [bottom, left, right] == [top; 3] => format!(", pad {top}"),
        _ => format!(", pad {top} {bottom} {left} {right}"),
    };
    let dilation = match conv.dilation {
        [1, 1] => String::new(),
        [dy, dx] if dy == dx => format!(", dilation {dy}"),
        [dy, dx] => format!(", dilation {dy}x{dx}"),
    };
    let groups = if conv.groups == 1 { String::new() } else { format!(", groups {}", conv.groups) };
    format!("{kh}x{kw}{stride}{dilation}{groups}{pad}")
}

/// Checks kernel and bias, and gives the output's shape.
fn output(op: &'static str, conv: &Conv2d, x: Shape, w: Shape, b: Option<Shape>) -> Result<Shape> {
    let y = conv.output(x)?;
    Error::check_shape(op, "the weights", w, Shape::vectors(1, conv.weights()))?;
    b.map_or(Ok(()), |b| per_channel(op, "the bias", b, conv.outputs))?;
    Ok(y)
}

impl Rule for Conv2dForward {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn options(&self) -> String {
        options(&self.conv) + &and_activation(self.act)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Conv2dForward { x, w, b } = self.operands_of(shapes)?;
        Ok(vec![output(self.name(), &self.conv, x, w, b)?])
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }

    fn fused_activation(&mut self) -> Option<&mut Activation> {
        Some(&mut self.act)
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (operands::Conv2dForward { x, w, b }, super::results::Output { y }) = self.bind(step)?;
        let dy = before_activation(self.act, y, to.of(step), to)?;
        if to.wants(w) || b.is_some_and(|b| to.wants(b)) {
            let op = Conv2dWeightGradient { conv: self.conv, bias: b.is_some() };
            let given = to.of_parameters(&step.operands[1..])?;
            to.push(op, &[x, dy], &given)?;
        }
        to.add_op(x, Conv2dInputGradient { conv: self.conv, x: to.shape(x) }, &[dy, w])
    }
}

impl Rule for Conv2dNormalized {
    fn name(&self) -> &'static str {
        "conv2d_batch_norm"
    }

    fn options(&self) -> String {
        options(&self.conv) + &and_activation(self.bn.act)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Conv2dNormalized { x, w, gamma, beta, mean, var, b } = self.operands_of(shapes)?;
        let y = output(self.name(), &self.conv, x, w, b)?;
        let runs = [("gamma", gamma), ("beta", beta), ("the mean", mean), ("the variance", var)];
        runs.into_iter().try_for_each(|(what, run)| per_channel(self.name(), what, run, y.c))?;
        Ok(vec![y])
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}

impl Rule for Conv2dInputGradient {
    fn name(&self) -> &'static str {
        "conv2d_input_gradient"
    }

    fn options(&self) -> String {
        options(&self.conv)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Conv2dInputGradient { dy, w } = self.operands_of(shapes)?;
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

impl Rule for Conv2dWeightGradient {
    fn name(&self) -> &'static str {
        "conv2d_weight_gradient"
    }

    fn options(&self) -> String {
        options(&self.conv)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Conv2dWeightGradient { x, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, self.conv.output(x)?)?;
        let bias = self.bias.then(|| Shape::vectors(1, self.conv.outputs));
        Ok([Shape::vectors(1, self.conv.weights())].into_iter().chain(bias).collect())
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}
