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

/// The gradient of a slice's input: that of the slice, and zeros for all other channels. Reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SliceGradient {
    /// The slice.
    pub slice: Slice,
    /// Channels of its input.
    pub of: usize,
}

/// Channels in another order: those of `groups` equal parts take turns. `y[i * groups + g] = x[g * (c / groups) + i]`, ShuffleNet's
/// channel shuffle (Zhang et al. 2018). Reads the tensor. Its gradient is the shuffle of `c / groups` groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelShuffle {
    /// The number of parts.
    pub groups: usize,
}

signatures! {
    Slice { x: batch "the input" }
    SliceGradient { dy: batch "dy" }
    ChannelShuffle { x: batch "the input" }
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
    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (x, dy) = (step.operands[0], to.of(step));
        to.add_op(x, SliceGradient { slice: *self, of: to.shape(x).c }, &[dy])
    }
}

impl Rule for SliceGradient {
    fn name(&self) -> &'static str {
        "slice_gradient"
    }

    fn options(&self) -> String {
        format!("{} of {}", self.slice.options(), self.of)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::SliceGradient { dy } = self.operands_of(shapes)?;
        let x = dy.with_c(self.of);
        Error::check_shape(self.name(), "dy", dy, self.slice.shapes(&[x])?[0])?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}

impl ChannelShuffle {
    /// The shuffle of `c` channels that undoes this one.
    pub fn inverse(&self, c: usize) -> ChannelShuffle {
        ChannelShuffle { groups: c / self.groups.max(1) }
    }
}

impl Rule for ChannelShuffle {
    fn name(&self) -> &'static str {
        "channel_shuffle"
    }

    fn options(&self) -> String {
        format!("groups {}", self.groups)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::ChannelShuffle { x } = self.operands_of(shapes)?;
        if self.groups == 0 || x.c % self.groups != 0 {
            let (value, accepted) = (self.groups as f64, "a divisor of the number of channels");
            return Err(Error::Value { op: self.name(), what: "the number of groups", value, accepted });
        }
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let (x, dy) = (step.operands[0], to.of(step));
        to.add_op(x, self.inverse(to.shape(x).c), &[dy])
    }
}
