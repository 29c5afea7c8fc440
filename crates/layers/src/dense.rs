use crate::activation::check_fused;
use crate::conv2d::{at_least_one, weights_and_bias};
use crate::{Initializer, Layer, Lower, ParamSpec};
use towers_program::{Activation, Error, Linear, Result, Shape, TensorId, ops};

/// A fully connected layer, with an activation fused into it.
///
/// Defaults as in Keras: a bias, Glorot-uniform weights. Takes vectors: put a [`Flatten`](crate::Flatten) before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    units: usize,
    activation: Activation,
    use_bias: bool,
    kernel_initializer: Initializer,
}

impl Dense {
    /// `units` outputs.
    pub fn new(units: usize) -> Self {
        let kernel_initializer = Initializer::GlorotUniform;
        Dense { units, activation: Activation::None, use_bias: true, kernel_initializer }
    }

    /// The activation after the product. GELU must be a separate layer.
    pub fn activation(self, activation: Activation) -> Self {
        Dense { activation, ..self }
    }

    /// Whether there is a bias.
    pub fn use_bias(self, use_bias: bool) -> Self {
        Dense { use_bias, ..self }
    }

    /// The initializer of the weights.
    pub fn kernel_initializer(self, kernel_initializer: Initializer) -> Self {
        Dense { kernel_initializer, ..self }
    }
}

impl Layer for Dense {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        weights_and_bias(vec![inputs[0].c, self.units], self.kernel_initializer, self.use_bias)
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let shape = to.shape(inputs[0]);
        Error::check_shape("dense", "the input (flatten it first)", shape, shape.flatten())?;
        at_least_one("dense", "units", self.units)?;
        check_fused("dense", self.activation)?;
        let linear = Linear { inputs: shape.c, outputs: self.units };
        let operands = [inputs, to.params()].concat();
        to.push(ops::LinearForward { linear, act: self.activation }, &operands)
    }

    fn makes_vectors(&self) -> bool {
        true
    }
}
