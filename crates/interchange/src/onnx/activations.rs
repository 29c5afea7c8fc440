//! Activations, there and back.
//!
//! One with an operator of its own, without attributes, is a line in [`PLAIN`]. Another one is a function in the table
//! of [operators](super::operators), and an arm of [`Nodes::activate`].

use super::extent::Extent;
use super::graph::{Of, Reader};
use super::node::Node;
use super::nodes::Nodes;
use layers::Step;
use program::Activation;

/// Operators that are an activation without attributes.
pub(super) const PLAIN: [(&str, Activation); 3] =
    [("Relu", Activation::Relu), ("Sigmoid", Activation::Sigmoid), ("Tanh", Activation::Tanh)];

impl<'g> Reader<'g> {
    /// An activation with an operator of its own.
    pub(super) fn plain_activation(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let own = PLAIN.iter().find(|(op, _)| *op == node.op());
        let (_, activation) = own.ok_or_else(|| node.unknown())?;
        self.activation(node, activation.name())
    }

    /// Both have an `alpha`, which is 1 here.
    pub(super) fn elu_or_swish(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let activation = if node.op() == "Elu" { Activation::Elu } else { Activation::Silu };
        match node.float("alpha", 1.0)? {
            1.0 => self.activation(node, activation.name()),
            alpha => Err(node.form(format!("with alpha={alpha}"))),
        }
    }

    pub(super) fn gelu(&mut self, node: &Node<'g>) -> Result<Of, String> {
        match node.word("approximate", "none")? {
            "none" => self.activation(node, "gelu"),
            _ => Err(node.form("with an approximation")),
        }
    }

    /// Only with the limits of a ReLU.
    pub(super) fn clip(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let [least, most] = match node.since(11) {
            true => [self.number(node, 1)?, self.number(node, 2)?],
            false => [node.given_float("min")?, node.given_float("max")?],
        };
        if least == Some(0.0) && most.is_none_or(|most| most >= f32::MAX) {
            return self.activation(node, "relu");
        }
        let shown = |limit: Option<f32>, none: &str| limit.map_or(none.to_owned(), |limit| limit.to_string());
        let (least, most) = (shown(least, "-inf"), shown(most, "inf"));
        Err(node.refuse(format!("is a Clip from {least} to {most}, but must be a ReLU, from 0 to inf")))
    }

    /// A softmax over the channels. The loss has it.
    pub(super) fn softmax(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let x = self.layer(node, 0)?;
        let shape = self.shape(&x);
        // Before version 13, of all that is behind the axis.
        let axis = node.int("axis", if node.since(13) { -1 } else { 1 })?;
        let is_vector = shape.iter().skip(2).all(|side| *side == Extent::number(1));
        if !is_vector || ![1, 1 - shape.len() as i64].contains(&axis) {
            return Err(node.form(format!("of the axis {axis} of {}", super::extent::shown(&shape))));
        }
        Ok(self.activate(node, "softmax", x))
    }
}

impl Nodes<'_> {
    /// The nodes of an activation; returns the name of the result.
    pub(super) fn activate(&mut self, step: &Step, x: String, act: Activation) -> String {
        let output = self.output(step);
        if let Some((op, _)) = PLAIN.iter().find(|(_, own)| *own == act) {
            return self.node(op, &[&x], &[], output);
        }
        match act {
            Activation::None | Activation::Relu | Activation::Sigmoid | Activation::Tanh => {
                self.node("Identity", &[&x], &[], output)
            }
            Activation::Gelu => self.gelu(step, &x, output),
            Activation::Silu => {
                let logistic = self.helper(step, "sigmoid");
                let logistic = self.node("Sigmoid", &[&x], &[], logistic);
                self.node("Mul", &[&x, &logistic], &[], output)
            }
            Activation::Elu => self.node("Elu", &[&x], &[], output),
        }
    }

    /// `x (1 + erf(x / sqrt(2))) / 2`, in the steps that onnxruntime fuses: operator sets before 20 have no
    /// `Gelu`.
    fn gelu(&mut self, step: &Step, x: &str, output: String) -> String {
        let [root, one, half] = [("sqrt2", core::f32::consts::SQRT_2), ("one", 1.0), ("half", 0.5)]
            .map(|(what, value)| self.constant(step, what, value));
        let [scaled, erf, sum, twice] = ["scaled", "erf", "sum", "twice"].map(|what| self.helper(step, what));
        let scaled = self.node("Div", &[x, &root], &[], scaled);
        let erf = self.node("Erf", &[&scaled], &[], erf);
        let sum = self.node("Add", &[&erf, &one], &[], sum);
        let twice = self.node("Mul", &[x, &sum], &[], twice);
        self.node("Mul", &[&twice, &half], &[], output)
    }
}
