use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Layout, Result, Shape, Span, Step};

/// The same numbers in another shape, in the order (row, column, channel): a vector of an image, or an image of a vector. Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reshape {
    /// The result's shape.
    pub to: Shape,
}

signatures! {
    Reshape { x: batch "the input" }
}

impl Reshape {
    /// Both layouts in one shape, for a copy: that of the one whose pixels may lie apart. The other one's lie back to back.
    pub fn layouts(x: Layout, y: Layout) -> [Layout; 2] {
        let seen = |layout: Layout, of: Layout| Layout { shape: of.shape, stride: of.shape.c, ..layout };
        if y.is_contiguous() { [x, seen(y, x)] } else { [seen(x, y), y] }
    }
}

impl Rule for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Reshape { x } = self.operands_of(shapes)?;
        Error::check_len(self.name(), "the input", Span::new(0, x.len()), self.to.len())?;
        Ok(vec![self.to])
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, Reshape { to: to.shape(x) }, &[to.of(step)])
    }
}
