use super::activation::before_activation;
use super::{Op, and_activation, count, operands, per_channel};
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{Activation, BatchNorm, Conv2d, Error, Kind, Pad, Result, Shape, Step};

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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("the weights"),
                Kind::parameter("the bias").optional(),
            ]
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let (x, w, b) = match *shapes {
            [x, w] => (x, w, None),
            [x, w, b] => (x, w, Some(b)),
            _ => return Err(count(self.name(), shapes.len(), 3)),
        };
        Ok(vec![output(self.name(), &self.conv, x, w, b)?])
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}

impl Conv2dForward {
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (&[x, w], b) = step.operands.split_at(2) else { return Ok(()) };
        let dy = before_activation(self.act, step.results[0], to.of(step), to)?;
        if to.wants(w) || b.iter().any(|&b| to.wants(b)) {
            let op = Conv2dWeightGradient { conv: self.conv, bias: !b.is_empty() };
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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("the weights"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::average("the mean"),
                Kind::average("the variance"),
                Kind::parameter("the bias").optional(),
            ]
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let (&[x, w, gamma, beta, mean, var, ref b @ ..], 6..=7) = (shapes, shapes.len()) else {
            return Err(count(self.name(), shapes.len(), 6));
        };
        let y = output(self.name(), &self.conv, x, w, b.first().copied())?;
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

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("dy"), Kind::parameter("the weights")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [dy, w] = operands(self.name(), shapes)?;
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

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("the input"), Kind::batch("dy")] }
    }

    fn results(&self) -> &'static [Kind] {
        const {
            &[
                Kind::gradient("the gradient of the weights"),
                Kind::gradient("the gradient of the bias").optional(),
            ]
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, dy] = operands(self.name(), shapes)?;
        Error::check_shape(self.name(), "dy", dy, self.conv.output(x)?)?;
        let bias = self.bias.then(|| Shape::vectors(1, self.conv.outputs));
        Ok([Shape::vectors(1, self.conv.weights())].into_iter().chain(bias).collect())
    }

    fn multiply_adds(&self, shapes: &[Shape]) -> usize {
        shapes.first().map_or(0, |&x| self.conv.multiply_adds(x))
    }
}
