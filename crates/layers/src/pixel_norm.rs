use crate::normalization::{affine, check_epsilon};
use crate::{Layer, Lower, ParamSpec};
use towers_program::{Result, Shape, TensorId, ops};

/// Normalizes each pixel over its channels, or each vector: `gamma * (x - mean) / sqrt(var + epsilon) + beta`.
///
/// Defaults as in Keras, with the axis of the channels: epsilon 1e-3, gamma and beta trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormalization {
    epsilon: f32,
    scale: bool,
    center: bool,
}

impl Default for LayerNormalization {
    fn default() -> Self {
        LayerNormalization { epsilon: 1e-3, scale: true, center: true }
    }
}

impl LayerNormalization {
    /// With Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Added to the variance.
    pub fn epsilon(self, epsilon: f32) -> Self {
        LayerNormalization { epsilon, ..self }
    }

    /// Whether gamma is trained; else it stays 1.
    pub fn scale(self, scale: bool) -> Self {
        LayerNormalization { scale, ..self }
    }

    /// Whether beta is trained; else it stays 0.
    pub fn center(self, center: bool) -> Self {
        LayerNormalization { center, ..self }
    }
}

impl Layer for LayerNormalization {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        affine(inputs[0].c, self.scale, self.center)
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        check_epsilon("layer normalization", self.epsilon)?;
        let &[gamma, beta] = to.params() else { unreachable!("a layer has the parameters that it asks for") };
        to.push(ops::LayerNorm { epsilon: self.epsilon }, &[inputs[0], gamma, beta])
    }
}

/// Divides each channel of a pixel by what its neighbours among the channels come to:
/// `x / (bias + alpha / size * sum of their squares)^beta`.
///
/// Names and defaults are those of ONNX' `LRN`; PyTorch's `LocalResponseNorm` calls the bias `k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNormalization {
    norm: ops::LocalResponseNorm,
}

impl LocalResponseNormalization {
    /// Over `size` channels, each channel itself included.
    pub fn new(size: usize) -> Self {
        LocalResponseNormalization {
            norm: ops::LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, bias: 1.0 },
        }
    }

    /// The factor on the mean of the squares.
    pub fn alpha(self, alpha: f32) -> Self {
        LocalResponseNormalization { norm: ops::LocalResponseNorm { alpha, ..self.norm } }
    }

    /// The exponent.
    pub fn beta(self, beta: f32) -> Self {
        LocalResponseNormalization { norm: ops::LocalResponseNorm { beta, ..self.norm } }
    }

    /// Added to the mean.
    pub fn bias(self, bias: f32) -> Self {
        LocalResponseNormalization { norm: ops::LocalResponseNorm { bias, ..self.norm } }
    }
}

impl Layer for LocalResponseNormalization {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(self.norm, inputs)
    }
}
