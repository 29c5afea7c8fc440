use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Kind, Result, Shape, Signature, Step};

/// Several tensors side by side, along the channels. Reads them. What lies inside of the result already is not copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Concat;

/// Some channels of a tensor. Reads it. A result that lies inside of it is not copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// The first channel.
    pub from: usize,
    /// How many.
    pub channels: usize,
}

signatures! {
    Slice { x: batch "the input" }
}

impl Signature for Concat {
    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("an operand").any()] }
    }

    fn results(&self) -> &'static [Kind] {
        super::results::Output::<()>::KINDS
    }
}

impl Rule for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let Some(first) = shapes.first() else { return Err(super::count(self.name(), 0, 1)) };
        for shape in shapes {
            Error::check_shape(self.name(), "an operand", *shape, first.with_c(shape.c))?;
        }
        Ok(vec![first.with_c(shapes.iter().map(|shape| shape.c).sum())])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (dy, mut from) = (to.of(step), 0);
        for &x in &step.operands {
            let channels = to.shape(x).c;
            to.add_op(x, Slice { from, channels }, &[dy])?;
            from += channels;
        }
        Ok(())
    }
}

impl Rule for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn options(&self) -> String {
        format!("{}..{}", self.from, self.from + self.channels)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Slice { x } = self.operands_of(shapes)?;
        if self.from.saturating_add(self.channels) > x.c {
            let (value, accepted) = (self.from as f64, "a channel of the input, with the others behind it");
            return Err(Error::Value { op: self.name(), what: "the first channel", value, accepted });
        }
        Ok(vec![x.with_c(self.channels)])
    }
}
