use super::operands;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{Error, Kind, Result, Shape, Step};

/// `y = factor * x`. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor.
    pub factor: f32,
}

impl Rule for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn options(&self) -> String {
        format!("by {}", self.factor)
    }

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("the input")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x] = operands(self.name(), shapes)?;
        if !self.factor.is_finite() {
            let (value, accepted) = (self.factor.into(), "a finite number");
            return Err(Error::Value { op: self.name(), what: "the factor", value, accepted });
        }
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}

impl Scale {
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, *self, &[to.of(step)])
    }
}
