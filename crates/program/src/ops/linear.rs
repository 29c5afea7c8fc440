use super::activation::before_activation;
use super::{count, operands, per_channel};
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{Activation, Error, Kind, Linear, Result, Shape, Step};

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
        if self.act == Activation::None { String::new() } else { self.act.name().to_owned() }
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
        Error::check_shape(self.name(), "the input", x, Shape::vectors(x.n, self.linear.inputs))?;
        Error::check_shape(self.name(), "the weights", w, Shape::vectors(1, self.linear.weights()))?;
        b.map_or(Ok(()), |b| per_channel(self.name(), "the bias", b, self.linear.outputs))?;
        Ok(vec![Shape::vectors(x.n, self.linear.outputs)])
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.linear.weights()
    }
}

impl LinearForward {
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (&[x, w], b) = step.operands.split_at(2) else { return Ok(()) };
        let dy = before_activation(self.act, step.results[0], to.of(step), to)?;
        if to.wants(w) || b.iter().any(|&b| to.wants(b)) {
            let given = to.of_parameters(&step.operands[1..])?;
            to.push(LinearWeightGradient { linear: self.linear, bias: !b.is_empty() }, &[x, dy], &given)?;
        }
        to.add_op(x, LinearInputGradient { linear: self.linear }, &[dy, w])
    }
}

impl Rule for LinearInputGradient {
    fn name(&self) -> &'static str {
        "linear_input_gradient"
    }

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("dy"), Kind::parameter("the weights")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [dy, w] = operands(self.name(), shapes)?;
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
        Error::check_shape(self.name(), "the input", x, Shape::vectors(x.n, self.linear.inputs))?;
        Error::check_shape(self.name(), "dy", dy, Shape::vectors(x.n, self.linear.outputs))?;
        let bias = self.bias.then(|| Shape::vectors(1, self.linear.outputs));
        Ok([Shape::vectors(1, self.linear.weights())].into_iter().chain(bias).collect())
    }

    fn multiply_adds(&self, _: &[Shape]) -> usize {
        self.linear.weights()
    }
}
