use super::operands;
use crate::op::Rule;
use crate::passes::Gradients;
use crate::{Error, Result, Shape, Span, Step};

/// The same numbers in another shape, in the order (row, column, channel): a vector of an image, or an image of a vector. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reshape {
    /// The result's shape.
    pub to: Shape,
}

impl Rule for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x] = operands(self.name(), shapes)?;
        Error::check_len(self.name(), "the input", Span::new(0, x.len()), self.to.len())?;
        Ok(vec![self.to])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        if to.wants(x) {
            let dx = to.push(Reshape { to: to.shape(x) }, &[to.of(step)], &[])?;
            to.add(x, dx[0])?;
        }
        Ok(())
    }

    fn adds(&self) -> bool {
        true
    }
}
