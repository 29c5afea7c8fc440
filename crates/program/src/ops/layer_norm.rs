use super::per_channel;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Op, Result, Shape, Step, TensorId};

/// Normalization of each pixel over its channels: `y = gamma * (x - mean) / sqrt(var + epsilon) + beta`, one gamma and beta a channel.
/// Reads x, gamma, beta.
///
/// J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", 2016.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub epsilon: f32,
}

/// The gradients of a layer normalization's input, gamma and beta. Reads x, gamma, dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormGradient {
    /// The op.
    pub norm: LayerNorm,
}

signatures! {
    LayerNorm { x: batch "the input", gamma: parameter "gamma", beta: parameter "beta" }
    LayerNormGradient { x: batch "the input", gamma: parameter "gamma", dy: batch "dy" } -> {
        dx: batch "the gradient of the input", dgamma: gradient "the gradient of gamma",
        dbeta: gradient "the gradient of beta"
    }
}

impl Rule for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn options(&self) -> String {
        format!("epsilon {}", self.epsilon)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LayerNorm { x, gamma, beta } = self.operands_of(shapes)?;
        per_channel(self.name(), "gamma", gamma, x.c)?;
        per_channel(self.name(), "beta", beta, x.c)?;
        Ok(vec![x])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::LayerNorm { x, gamma, beta } = self.operands_of(&step.operands)?;
        let (given, dy) = (to.of_parameters(&[gamma, beta])?, to.of(step));
        let dx = to.push(LayerNormGradient { norm: *self }, &[x, gamma, dy], &given)?[0];
        to.add(x, dx)
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        Some(((*self).into(), step.operands.clone()))
    }
}

impl Rule for LayerNormGradient {
    fn name(&self) -> &'static str {
        "layer_norm_gradient"
    }

    fn options(&self) -> String {
        self.norm.options()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::LayerNormGradient { x, gamma, dy } = self.operands_of(shapes)?;
        per_channel(self.name(), "gamma", gamma, x.c)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x, gamma, gamma])
    }

    fn adds(&self) -> bool {
        true
    }
}
