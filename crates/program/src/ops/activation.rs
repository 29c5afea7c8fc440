use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, Error, Result, Shape, Step, TensorId};

/// `y = act(x)`. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activate {
    /// The function.
    pub act: Activation,
}

/// The gradient before an activation function. Reads the function's output, or its input where the gradient
/// [needs that](Activation::reads_input), and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationGradient {
    /// The function.
    pub act: Activation,
}

signatures! {
    Activate { x: batch "the input" }
    ActivationGradient { of: batch "the function's output or input", dy: batch "dy" }
}

impl Rule for Activate {
    fn name(&self) -> &'static str {
        "activate"
    }

    fn options(&self) -> String {
        self.act.to_string()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Activate { x } = self.operands_of(shapes)?;
        self.act.check(self.name())?;
        Ok(vec![x])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        let of = if self.act.reads_input() { x } else { step.results[0] };
        to.add_op(x, ActivationGradient { act: self.act }, &[of, to.of(step)])
    }

    // Only where the backward pass keeps the input: otherwise it would be kept for this alone.
    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        self.act.reads_input().then(|| (step.op, step.operands.clone()))
    }
}

impl Rule for ActivationGradient {
    fn name(&self) -> &'static str {
        "activation_gradient"
    }

    fn options(&self) -> String {
        self.act.to_string()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::ActivationGradient { of, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, of)?;
        Ok(vec![of])
    }

    fn in_place(&self) -> &'static [usize] {
        &[1]
    }

    fn adds(&self) -> bool {
        true
    }
}

/// The gradient before a fused activation, which follows from its output: `differentiate` has taken the others out of their ops.
pub(super) fn before_activation(
    act: Activation,
    y: TensorId,
    dy: TensorId,
    to: &mut Gradients,
) -> Result<TensorId> {
    match act {
        Activation::None => Ok(dy),
        act => Ok(to.push(ActivationGradient { act }, &[y, dy], &[])?[0]),
    }
}
