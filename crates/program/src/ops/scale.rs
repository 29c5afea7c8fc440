use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Result, Shape, Step};

/// `y = factor * x`. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor.
    pub factor: f32,
}

signatures! {
    Scale { x: batch "the input" }
}

impl Rule for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn options(&self) -> String {
        format!("by {}", self.factor)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Scale { x } = self.operands_of(shapes)?;
        if !self.factor.is_finite() {
            let (value, accepted) = (self.factor.into(), "a finite number");
            return Err(Error::Value { op: self.name(), what: "the factor", value, accepted });
        }
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, *self, &[to.of(step)])
    }
}
