use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Result, Shape, Step};

/// Each channel of a pixel by its neighbours: `y = x / (bias + alpha / size * sum of their squares)^beta`. Reads x.
///
/// A. Krizhevsky, I. Sutskever, G. E. Hinton, "ImageNet classification with deep convolutional neural networks", 2012. As ONNX'
/// `LRN`, of an even number of neighbours one more is behind the channel than before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// Channels whose squares are added up, the channel itself included.
    pub size: usize,
    /// The factor on the mean of the squares.
    pub alpha: f32,
    /// The exponent.
    pub beta: f32,
    /// Added to the mean; PyTorch's `k`.
    pub bias: f32,
}

/// The gradient of [`LocalResponseNorm`]'s input. Reads x and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNormGradient {
    /// The op.
    pub norm: LocalResponseNorm,
}

signatures! {
    LocalResponseNorm { x: batch "the input" }
    LocalResponseNormGradient { x: batch "the input", dy: batch "dy" }
}

impl LocalResponseNorm {
    /// Neighbours before the channel.
    pub fn before(&self) -> usize {
        self.size.saturating_sub(1) / 2
    }

    fn check(&self, op: &'static str) -> Result<()> {
        if self.size == 0 || self.size > 1 << 16 {
            let (what, accepted) = ("the number of neighbours", "from 1 to 65536");
            return Err(Error::Value { op, what, value: self.size as f64, accepted });
        }
        for (what, value) in [("alpha", self.alpha), ("the bias", self.bias)] {
            if !(0.0..f32::INFINITY).contains(&value) {
                return Err(Error::Value {
                    op,
                    what,
                    value: f64::from(value),
                    accepted: "a number from 0 on",
                });
            }
        }
        if !self.beta.is_finite() {
            let (what, accepted) = ("beta", "a number");
            return Err(Error::Value { op, what, value: f64::from(self.beta), accepted });
        }
        Ok(())
    }
}

impl Rule for LocalResponseNorm {
    fn name(&self) -> &'static str {
        "local_response_norm"
    }

    fn options(&self) -> String {
        let LocalResponseNorm { size, alpha, beta, bias } = self;
        format!("of {size}, alpha {alpha}, beta {beta}, bias {bias}")
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LocalResponseNorm { x } = self.operands_of(shapes)?;
        self.check(self.name())?;
        Ok(vec![x])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, LocalResponseNormGradient { norm: *self }, &[x, to.of(step)])
    }
}

impl Rule for LocalResponseNormGradient {
    fn name(&self) -> &'static str {
        "local_response_norm_gradient"
    }

    fn options(&self) -> String {
        self.norm.options()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LocalResponseNormGradient { x, dy } = self.operands_of(shapes)?;
        self.norm.check(self.name())?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}
