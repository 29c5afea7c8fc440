use crate::activation::fused;
use crate::{Initializer, Layer, Lower, Operation, ParamSpec, Role};
use std::borrow::Cow;
use tensor::{Activation, BatchNorm, Result, Shape, TensorId, ops};

/// Batch normalization over all axes but the channels, with an activation fused into it.
///
/// Defaults as in Keras: momentum 0.99, epsilon 1e-3, gamma 1, beta 0. The running statistics change when replicas' sums
/// have been added ([`Network::finish_step`](crate::Network::finish_step)), so that every replica has the same.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalization {
    momentum: f32,
    epsilon: f32,
    scale: bool,
    activation: Activation,
}

impl Default for BatchNormalization {
    fn default() -> Self {
        BatchNormalization { momentum: 0.99, epsilon: 1e-3, scale: true, activation: Activation::None }
    }
}

impl BatchNormalization {
    /// With Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The share of the old running statistics that stays in a step (PyTorch's `1 - momentum`).
    pub fn momentum(self, momentum: f32) -> Self {
        BatchNormalization { momentum, ..self }
    }

    /// Added to the variance.
    pub fn epsilon(self, epsilon: f32) -> Self {
        BatchNormalization { epsilon, ..self }
    }

    /// Whether gamma is trained. Otherwise it is there all the same, and stays 1: PyTorch's `weight.requires_grad = False`.
    /// Keras' `scale=False` computes the same, but has no gamma in its files.
    pub fn scale(self, scale: bool) -> Self {
        BatchNormalization { scale, ..self }
    }

    /// What follows the normalization.
    pub fn activation(self, activation: Activation) -> Self {
        BatchNormalization { activation, ..self }
    }
}

impl Layer for BatchNormalization {
    fn kind(&self) -> Cow<'static, str> {
        fused("BatchNormalization", self.activation)
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let running = Role::Running { momentum: self.momentum };
        [
            ("gamma", Initializer::Ones, Role::trained(self.scale)),
            ("beta", Initializer::Zeros, Role::Trainable),
            ("moving_mean", Initializer::Zeros, running),
            ("moving_variance", Initializer::Ones, running),
        ]
        .map(|(name, init, role)| ParamSpec { name, shape: vec![x.c], init, role })
        .into()
    }

    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
        let refuse = |what, value: f32, accepted| {
            Err(tensor::Error::Value { op: "batch normalization", what, value: value.into(), accepted })
        };
        if !(0.0..=1.0).contains(&self.momentum) {
            return refuse("momentum", self.momentum, "from 0 to 1");
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return refuse("epsilon", self.epsilon, "a finite number of at least 0");
        }
        let bn = BatchNorm { epsilon: self.epsilon, act: self.activation };
        let &[gamma, beta, mean, variance] = to.params() else {
            unreachable!("a layer has the parameters that it asks for")
        };
        if to.is_training() {
            to.push_with_sums(ops::BatchNormTrain { bn }, &[x, gamma, beta])
        } else {
            to.push(ops::BatchNormInfer { bn }, &[x, gamma, beta, mean, variance])
        }
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::BatchNorm(BatchNorm { epsilon: self.epsilon, act: self.activation }))
    }
}
