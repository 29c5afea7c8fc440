use crate::{Initializer, Layer, Lower, ParamSpec, Role};
use towers_program::{Result, Shape, TensorId, ops};

/// `x`, or `alpha * x` below 0, with a trained alpha for each channel: Keras' `PReLU(shared_axes=[1, 2])`, PyTorch's `PReLU`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PReLU {
    alpha_initializer: Initializer,
}

impl Default for PReLU {
    fn default() -> Self {
        PReLU { alpha_initializer: Initializer::Zeros }
    }
}

impl PReLU {
    /// With slopes that begin at 0, as in Keras. PyTorch's begin at 1/4.
    pub fn new() -> Self {
        Self::default()
    }

    /// The initializer of the slopes.
    pub fn alpha_initializer(self, alpha_initializer: Initializer) -> Self {
        PReLU { alpha_initializer }
    }
}

impl Layer for PReLU {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let (init, role) = (self.alpha_initializer, Role::Trainable);
        vec![ParamSpec { name: "alpha", shape: vec![inputs[0].c], init, role }]
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let operands = [inputs, to.params()].concat();
        to.push(ops::PRelu, &operands)
    }
}
