//! Activations, there and back.
//!
//! One with an operator of its own, without attributes, is a line in [`PLAIN`]. Another one is a function in the table
//! of [operators](super::operators), and an arm of [`Nodes::activate`].

use super::graph::{Of, Reader};
use super::node::Node;
use super::nodes::Attribute::Float;
use super::nodes::Nodes;
use serde_json::json;
use towers_layers::Step;
use towers_program::Activation;

/// Operators that are an activation without attributes.
pub(super) const PLAIN: [(&str, Activation); 5] = [
    ("HardSwish", Activation::HardSwish),
    ("Relu", Activation::Relu),
    ("Sigmoid", Activation::Sigmoid),
    ("Softplus", Activation::Softplus),
    ("Tanh", Activation::Tanh),
];

impl<'g> Reader<'g> {
    /// An activation with an operator of its own, or a part of one.
    pub(super) fn function(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let name = match PLAIN.iter().find(|(op, _)| *op == node.op()) {
            Some((_, activation)) => activation.name(),
            None => match node.op() {
                "Erf" => "erf",
                "Reciprocal" => "reciprocal",
                "Sqrt" => "sqrt",
                "Mish" => "mish",
                _ => return Err(node.unknown()),
            },
        };
        if !node.since(6) {
            node.ints("consumed_inputs")?;
        }
        self.activation(node, name)
    }

    /// Both have an `alpha`, which is 1 here.
    pub(super) fn elu_or_swish(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let activation = if node.op() == "Elu" { Activation::Elu } else { Activation::Silu };
        match node.float("alpha", 1.0)? {
            1.0 => self.activation(node, activation.name()),
            alpha => Err(node.form(format!("with alpha={alpha}"))),
        }
    }

    pub(super) fn leaky_relu(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let slope = node.float("alpha", 0.01)?;
        self.pointwise(node, "LeakyReLU", json!({"negative_slope": slope}), Vec::new())
    }

    pub(super) fn gelu(&mut self, node: &Node<'g>) -> Result<Of, String> {
        match node.word("approximate", "none")? {
            "none" => self.activation(node, "gelu"),
            _ => Err(node.form("with an approximation")),
        }
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
            Activation::None => self.node("Identity", &[&x], &[], output),
            Activation::BoundedRelu(most) => {
                let [none, most] =
                    [("least", 0.0), ("most", most)].map(|(what, x)| self.constant(step, what, x));
                self.node("Clip", &[&x, &none, &most], &[], output)
            }
            Activation::LeakyRelu(slope) => self.node("LeakyRelu", &[&x], &[Float("alpha", slope)], output),
            Activation::HardSigmoid(slope) => {
                self.node("HardSigmoid", &[&x], &[Float("alpha", slope), Float("beta", 0.5)], output)
            }
            // Operator sets before 18 have no `Mish`.
            Activation::Mish => {
                let [soft, tanh] = ["softplus", "tanh"].map(|what| self.helper(step, what));
                let soft = self.node("Softplus", &[&x], &[], soft);
                let tanh = self.node("Tanh", &[&soft], &[], tanh);
                self.node("Mul", &[&x, &tanh], &[], output)
            }
            Activation::Gelu => self.gelu(step, &x, output),
            Activation::Silu => {
                let logistic = self.helper(step, "sigmoid");
                let logistic = self.node("Sigmoid", &[&x], &[], logistic);
                self.node("Mul", &[&x, &logistic], &[], output)
            }
            Activation::Elu => self.node("Elu", &[&x], &[], output),
            // Those in the table.
            act => self.node(act.label(), &[&x], &[], output),
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
