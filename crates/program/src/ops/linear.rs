use super::activation::before_activation;
use super::per_channel;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, Error, Linear, Result, Shape, Step};

/// `y = act(x w + b)`. Reads x, w and, if there is one, b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearForward {
    /// The dense layer.
    pub linear: Linear,
    /// What follows it.
    pub act: Activation,
}

/// The gradient of a dense layer's input. Reads dy, before the activation, and w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearInputGradient {
    /// The dense layer.
    pub linear: Linear,
}

/// The gradients of a dense layer's kernel and, if it has one, its bias. Reads x, and dy before the activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearWeightGradient {
    /// The dense layer.
    pub linear: Linear,
    /// Whether there is a bias.
    pub bias: bool,
}

signatures! {
    LinearForward { x: batch "the input", w: parameter "the weights"; b: parameter "the bias" }
    LinearInputGradient { dy: batch "dy", w: parameter "the weights" }
    LinearWeightGradient { x: batch "the input", dy: batch "dy" } -> {
        dw: gradient "the gradient of the weights"; db: gradient "the gradient of the bias"
    }
}

impl Linear {
    const fn weights(&self) -> usize {
        self.inputs.saturating_mul(self.outputs)
    }
}

impl Rule for LinearForward {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn options(&self) -> String {
        if self.act == Activation::None { String::new() } else { self.act.to_string() }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LinearForward { x, w, b } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "the input", x, Shape::vectors(x.n, self.linear.inputs))?;
        Error::check_shape(self.name(), "the weights", w, Shape::vectors(1, self.linear.weights()))?;
        b.map_or(Ok(()), |b| per_channel(self.name(), "the bias", b, self.linear.outputs))?;
        Ok(vec![Shape::vectors(x.n, self.linear.outputs)])
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.linear.weights()
    }

    fn fused_activation(&mut self) -> Option<&mut Activation> {
        Some(&mut self.act)
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (operands::LinearForward { x, w, b }, super::results::Output { y }) = self.bind(step)?;
        let dy = before_activation(self.act, y, to.of(step), to)?;
        if to.wants(w) || b.is_some_and(|b| to.wants(b)) {
            let given = to.of_parameters(&step.operands[1..])?;
            to.push(LinearWeightGradient { linear: self.linear, bias: b.is_some() }, &[x, dy], &given)?;
        }
        to.add_op(x, LinearInputGradient { linear: self.linear }, &[dy, w])
    }
}

impl Rule for LinearInputGradient {
    fn name(&self) -> &'static str {
        "linear_input_gradient"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LinearInputGradient { dy, w } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, Shape::vectors(dy.n, self.linear.outputs))?;
        Error::check_shape(self.name(), "the weights", w, Shape::vectors(1, self.linear.weights()))?;
        Ok(vec![Shape::vectors(dy.n, self.linear.inputs)])
    }

    fn adds(&self) -> bool {
        true
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.linear.weights()
    }
}

impl Rule for LinearWeightGradient {
    fn name(&self) -> &'static str {
        "linear_weight_gradient"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LinearWeightGradient { x, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "the input", x, Shape::vectors(x.n, self.linear.inputs))?;
        Error::check_shape(self.name(), "dy", dy, Shape::vectors(x.n, self.linear.outputs))?;
        let bias = self.bias.then(|| Shape::vectors(1, self.linear.outputs));
        Ok([Shape::vectors(1, self.linear.weights())].into_iter().chain(bias).collect())
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.linear.weights()
    }
}
