use super::per_channel;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, Error, Op, Result, Shape, Step, TensorId};

/// Normalization of each sample by itself, over rows, columns and the channels of a group, then an activation:
/// `y = act(gamma * (x - mean) / sqrt(var + epsilon) + beta)`, one mean and variance a group, one gamma and beta a channel. Reads x, gamma, beta.
///
/// Y. Wu, K. He, "Group normalization", 2018.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Groups of neighbouring channels, all of one size.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// What follows.
    pub act: Activation,
}

/// The gradients of a group normalization's input, gamma and beta. Reads x, gamma, beta, dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormGradient {
    /// The op.
    pub norm: GroupNorm,
}

signatures! {
    GroupNorm { x: batch "the input", gamma: parameter "gamma", beta: parameter "beta" }
    GroupNormGradient {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta", dy: batch "dy"
    } -> {
        dx: batch "the gradient of the input", dgamma: gradient "the gradient of gamma",
        dbeta: gradient "the gradient of beta"
    }
}

impl GroupNorm {
    fn check(&self, op: &'static str, x: Shape, gamma: Shape, beta: Shape) -> Result<()> {
        per_channel(op, "gamma", gamma, x.c)?;
        per_channel(op, "beta", beta, x.c)?;
        if self.groups > 0 && x.c.is_multiple_of(self.groups) {
            return Ok(());
        }
        let (what, accepted) = ("the number of groups", "a divisor of the number of channels");
        Err(Error::Value { op, what, value: self.groups as f64, accepted })
    }
}

impl Rule for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn options(&self) -> String {
        format!("{} groups, epsilon {}{}", self.groups, self.epsilon, super::and_activation(self.act))
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::GroupNorm { x, gamma, beta } = self.operands_of(shapes)?;
        self.check(self.name(), x, gamma, beta)?;
        Ok(vec![x])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::GroupNorm { x, gamma, beta } = self.operands_of(&step.operands)?;
        let (given, dy) = (to.of_parameters(&[gamma, beta])?, to.of(step));
        let dx = to.push(GroupNormGradient { norm: *self }, &[x, gamma, beta, dy], &given)?[0];
        to.add(x, dx)
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        Some(((*self).into(), step.operands.clone()))
    }
}

impl Rule for GroupNormGradient {
    fn name(&self) -> &'static str {
        "group_norm_gradient"
    }

    fn options(&self) -> String {
        self.norm.options()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::GroupNormGradient { x, gamma, beta, dy } = self.operands_of(shapes)?;
        self.norm.check(self.name(), x, gamma, beta)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x, gamma, beta])
    }

    fn adds(&self) -> bool {
        true
    }
}
