use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Op, Result, Shape, Step, TensorId};

/// How numbers of two tensors become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Their product.
    Product,
    /// Their sum.
    Sum,
}

/// Which numbers of a tensor meet one number of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One: both have one shape.
    None,
    /// Those of a channel of a sample: the other tensor is (1, 1, c).
    Pixels,
    /// Those of a pixel: the other tensor is (h, w, 1).
    Channels,
}

impl Spread {
    /// Of `z` over `x`.
    ///
    /// # Errors
    /// If `z` has none of the three shapes.
    pub fn of(op: &'static str, x: Shape, z: Shape) -> Result<Spread> {
        for spread in [Spread::None, Spread::Pixels, Spread::Channels] {
            if z == spread.shape(x) {
                return Ok(spread);
            }
        }
        Error::check_shape(op, "the second operand", z, x).map(|()| Spread::None)
    }

    /// The shape of the other tensor.
    pub fn shape(self, x: Shape) -> Shape {
        match self {
            Spread::None => x,
            Spread::Pixels => Shape::new(x.n, 1, 1, x.c),
            Spread::Channels => x.with_c(1),
        }
    }
}

/// `y = x * z` or `y = x + z`, where z has the shape of x, one number for each channel of a sample, or one for each pixel. Reads x and z.
///
/// With one number a channel it is the end of a squeeze-and-excite block: J. Hu, L. Shen, G. Sun, "Squeeze-and-excitation networks", 2018.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merge {
    /// Product or sum.
    pub how: How,
}

/// The gradient of the z of a [`Merge`] that is spread: the sums of dy, or of `dy * x`, over what each of its numbers met. Reads dy and,
/// for a product, x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeGradient {
    /// How z is spread.
    pub spread: Spread,
}

signatures! {
    Merge { x: batch "the first operand", z: batch "the second operand" }
    MergeGradient { dy: batch "dy"; x: batch "the first operand" }
}

impl Rule for Merge {
    fn name(&self) -> &'static str {
        match self.how {
            How::Product => "multiply",
            How::Sum => "add_spread",
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Merge { x, z } = self.operands_of(shapes)?;
        Spread::of(self.name(), x, z)?;
        Ok(vec![x])
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::Merge { x, z } = self.operands_of(&step.operands)?;
        let (spread, dy) = (Spread::of(self.name(), to.shape(x), to.shape(z))?, to.of(step));
        match (self.how, spread) {
            (How::Sum, _) => to.add(x, dy)?,
            (How::Product, _) => to.add_op(x, *self, &[dy, z])?,
        }
        match (self.how, spread) {
            (How::Sum, Spread::None) => to.add(z, dy),
            (How::Product, Spread::None) => to.add_op(z, *self, &[dy, x]),
            (How::Sum, spread) => to.add_op(z, MergeGradient { spread }, &[dy]),
            (How::Product, spread) => to.add_op(z, MergeGradient { spread }, &[dy, x]),
        }
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        Some(((*self).into(), step.operands.clone()))
    }
}

impl Rule for MergeGradient {
    fn name(&self) -> &'static str {
        "spread_gradient"
    }

    fn options(&self) -> String {
        match self.spread {
            Spread::None => "of each number",
            Spread::Pixels => "over pixels",
            Spread::Channels => "over channels",
        }
        .to_owned()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::MergeGradient { dy, x } = self.operands_of(shapes)?;
        if let Some(x) = x {
            Error::check_shape(self.name(), "the first operand", x, dy)?;
        }
        Ok(vec![self.spread.shape(dy)])
    }

    fn adds(&self) -> bool {
        true
    }
}
