use super::per_channel;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Op, Result, Shape, Step, TensorId};

/// `y = x`, or `slope * x` below 0, with a trained slope for each channel: Keras' `PReLU(shared_axes=[1, 2])`, PyTorch's `PReLU`. Reads x
/// and the slopes.
///
/// K. He, X. Zhang, S. Ren, J. Sun, "Delving deep into rectifiers", 2015.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PRelu;

/// The gradient of a [`PRelu`]'s input. Reads x, the slopes and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PReluInputGradient;

/// The gradient of a [`PRelu`]'s slopes. Reads x and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PReluSlopeGradient;

signatures! {
    PRelu { x: batch "the input", slopes: parameter "the slopes" }
    PReluInputGradient { x: batch "the input", slopes: parameter "the slopes", dy: batch "dy" }
    PReluSlopeGradient { x: batch "the input", dy: batch "dy" } -> { dslopes: gradient "the gradient of the slopes" }
}

impl Rule for PRelu {
    fn name(&self) -> &'static str {
        "prelu"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::PRelu { x, slopes } = self.operands_of(shapes)?;
        per_channel(self.name(), "the slopes", slopes, x.c)?;
        Ok(vec![x])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::PRelu { x, slopes } = self.operands_of(&step.operands)?;
        let dy = to.of(step);
        if to.wants(slopes) {
            let given = to.of_parameters(&[slopes])?;
            to.push(PReluSlopeGradient, &[x, dy], &given)?;
        }
        to.add_op(x, PReluInputGradient, &[x, slopes, dy])
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        Some(((*self).into(), step.operands.clone()))
    }
}

impl Rule for PReluInputGradient {
    fn name(&self) -> &'static str {
        "prelu_input_gradient"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::PReluInputGradient { x, slopes, dy } = self.operands_of(shapes)?;
        per_channel(self.name(), "the slopes", slopes, x.c)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}

impl Rule for PReluSlopeGradient {
    fn name(&self) -> &'static str {
        "prelu_slope_gradient"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::PReluSlopeGradient { x, dy } = self.operands_of(shapes)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![Shape::vectors(1, x.c)])
    }
}
