use crate::{Initializer, Layer, Lower, ParamSpec, Role};
use towers_program::ops::Depthwise;
use towers_program::{Activation, Result, Shape, TensorId, ops};

/// All numbers times a constant, plus another one: Keras' `Rescaling(scale, offset)`.
///
/// With an offset, or other constants for each color, it is a 1x1 depthwise convolution whose weights are not trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rescaling {
    scale: [f32; 3],
    offset: [f32; 3],
}

impl Rescaling {
    /// `scale * x`.
    pub fn new(scale: f32) -> Self {
        Rescaling::per_channel([scale; 3], [0.0; 3])
    }

    /// `scale * x + offset`.
    pub fn offset(self, offset: f32) -> Self {
        Rescaling { offset: [offset; 3], ..self }
    }

    /// `scale * x + offset`, with the numbers of each color. Channel `c` has the number `c % 3`.
    pub fn per_channel(scale: [f32; 3], offset: [f32; 3]) -> Self {
        Rescaling { scale, offset }
    }
}

impl Layer for Rescaling {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        // A NaN is left to the op, which refuses it.
        let alike = self.scale.iter().all(|scale| scale.to_bits() == self.scale[0].to_bits());
        if self.offset == [0.0; 3] && alike {
            return Vec::new();
        }
        let c = inputs[0].c;
        let kernel = ("depthwise_kernel", vec![1, 1, c, 1], Initializer::PerChannel(self.scale));
        let bias = ("bias", vec![c], Initializer::PerChannel(self.offset));
        [kernel, bias].map(|(name, shape, init)| ParamSpec { name, shape, init, role: Role::Frozen }).into()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        if to.params().is_empty() {
            return to.push(ops::Scale { factor: self.scale[0] }, inputs);
        }
        let conv = Depthwise::per_channel(to.shape(inputs[0]).c);
        let operands = [inputs, to.params()].concat();
        to.push(ops::DepthwiseForward { conv, act: Activation::None }, &operands)
    }
}
