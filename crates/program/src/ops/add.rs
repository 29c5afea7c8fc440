use super::{before_activation, operands};
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{Activation, Error, Result, Shape, Step};

/// `y = act(a + b)`: the end of a residual block, and gradients that come together. Reads a and b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Add {
    /// The activation after the sum.
    pub act: Activation,
}

impl Rule for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn options(&self) -> String {
        if self.act == Activation::None { String::new() } else { self.act.name().to_owned() }
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [a, b] = operands(self.name(), shapes)?;
        Error::check_shape(self.name(), "the second operand", b, a)?;
        Ok(vec![a])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let dy = before_activation(self.act, step.results[0], to.of(step), to)?;
        for &operand in &step.operands {
            to.add(operand, dy)?;
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[1, 0]
    }
}
