use crate::activation::fused;
use crate::{Initializer, Layer, Lower, ParamSpec, Role};
use std::borrow::Cow;
use towers_program::{Activation, BatchNorm, Result, Shape, TensorId, ops};

/// Batch normalization over all axes but the channels, with an activation fused into it.
///
/// Defaults as in Keras: momentum 0.99, epsilon 1e-3, gamma 1, beta 0. The running statistics change after
/// the all-reduce ([`Network::finish_step`](crate::Network::finish_step)), so every replica has the same.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalization {
    momentum: f32,
    epsilon: f32,
    scale: bool,
    center: bool,
    activation: Activation,
}

impl Default for BatchNormalization {
    fn default() -> Self {
        let (scale, center, activation) = (true, true, Activation::None);
        BatchNormalization { momentum: 0.99, epsilon: 1e-3, scale, center, activation }
    }
}

impl BatchNormalization {
    /// With Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The share of the old running statistics that a step keeps (PyTorch's `1 - momentum`).
    pub fn momentum(self, momentum: f32) -> Self {
        BatchNormalization { momentum, ..self }
    }

    /// Added to the variance.
    pub fn epsilon(self, epsilon: f32) -> Self {
        BatchNormalization { epsilon, ..self }
    }

    /// Whether gamma is trained. Otherwise it stays 1: PyTorch's `weight.requires_grad = False`. Keras'
    /// `scale=False` computes the same, but has no gamma in its files.
    pub fn scale(self, scale: bool) -> Self {
        BatchNormalization { scale, ..self }
    }

    /// Whether beta is trained. Otherwise it stays 0, and Keras' `center=False` has none in its files.
    pub fn center(self, center: bool) -> Self {
        BatchNormalization { center, ..self }
    }

    /// The activation after the normalization.
    pub fn activation(self, activation: Activation) -> Self {
        BatchNormalization { activation, ..self }
    }
}

impl Layer for BatchNormalization {
    fn kind(&self) -> Cow<'static, str> {
        fused("BatchNormalization", self.activation)
    }

    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let running = Role::Running { momentum: self.momentum };
        [
            ("gamma", Initializer::Ones, Role::trained(self.scale)),
            ("beta", Initializer::Zeros, Role::trained(self.center)),
            ("moving_mean", Initializer::Zeros, running),
            ("moving_variance", Initializer::Ones, running),
        ]
        .map(|(name, init, role)| ParamSpec { name, shape: vec![inputs[0].c], init, role })
        .into()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let (op, what, accepted) = ("batch normalization", "momentum", "from 0 to 1");
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(towers_program::Error::Value { op, what, value: self.momentum.into(), accepted });
        }
        check_epsilon(op, self.epsilon)?;
        let bn = BatchNorm { epsilon: self.epsilon, act: self.activation };
        let &[gamma, beta, mean, variance] = to.params() else {
            unreachable!("a layer has the parameters that it asks for")
        };
        if to.is_training() && !to.is_frozen() {
            return to.push_with_sums(ops::BatchNormTrain { bn }, &[inputs[0], gamma, beta]);
        }
        to.push(ops::BatchNormInfer { bn }, &[inputs[0], gamma, beta, mean, variance])
    }
}

/// Group normalization: each sample by itself, over rows, columns and the channels of a group, with a fused
/// activation.
///
/// Defaults as in Keras: 32 groups, epsilon 1e-3, gamma 1, beta 0. One group is layer normalization over the
/// image. One group a channel is instance normalization. It has no running statistics, so training and
/// inference compute the same.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNormalization {
    groups: usize,
    epsilon: f32,
    scale: bool,
    center: bool,
    activation: Activation,
}

impl Default for GroupNormalization {
    fn default() -> Self {
        let (scale, center, activation) = (true, true, Activation::None);
        GroupNormalization { groups: 32, epsilon: 1e-3, scale, center, activation }
    }
}

impl GroupNormalization {
    /// With Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Groups of neighbouring channels: a divisor of their number.
    pub fn groups(self, groups: usize) -> Self {
        GroupNormalization { groups, ..self }
    }

    /// Added to the variance.
    pub fn epsilon(self, epsilon: f32) -> Self {
        GroupNormalization { epsilon, ..self }
    }

    /// Whether gamma is trained. Otherwise it stays 1.
    pub fn scale(self, scale: bool) -> Self {
        GroupNormalization { scale, ..self }
    }

    /// Whether beta is trained. Otherwise it stays 0.
    pub fn center(self, center: bool) -> Self {
        GroupNormalization { center, ..self }
    }

    /// The activation after the normalization.
    pub fn activation(self, activation: Activation) -> Self {
        GroupNormalization { activation, ..self }
    }
}

impl Layer for GroupNormalization {
    fn kind(&self) -> Cow<'static, str> {
        fused("GroupNormalization", self.activation)
    }

    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        affine(inputs[0].c, self.scale, self.center)
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        check_epsilon("group normalization", self.epsilon)?;
        let &[gamma, beta] = to.params() else { unreachable!("a layer has the parameters that it asks for") };
        let (groups, epsilon, act) = (self.groups, self.epsilon, self.activation);
        to.push(ops::GroupNorm { groups, epsilon, act }, &[inputs[0], gamma, beta])
    }
}

/// Gamma and beta of a normalization, and whether each is trained.
pub(crate) fn affine(channels: usize, scale: bool, center: bool) -> Vec<ParamSpec> {
    [("gamma", Initializer::Ones, scale), ("beta", Initializer::Zeros, center)]
        .map(|(name, init, trained)| ParamSpec {
            name,
            shape: vec![channels],
            init,
            role: Role::trained(trained),
        })
        .into()
}

pub(crate) fn check_epsilon(op: &'static str, epsilon: f32) -> Result<()> {
    if epsilon >= 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    let (what, accepted) = ("epsilon", "a finite number of at least 0");
    Err(towers_program::Error::Value { op, what, value: epsilon.into(), accepted })
}
