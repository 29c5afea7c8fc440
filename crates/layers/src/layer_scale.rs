use crate::{Initializer, Layer, Lower, ParamSpec, Role};
use towers_program::ops::Depthwise;
use towers_program::{Activation, Result, Shape, TensorId, ops};

/// Each channel times a trained factor: the layer scale of ConvNeXt's residuals, and `LayerScale` of `keras.applications`.
///
/// It is a depthwise convolution of 1x1 pixels without a bias. H. Touvron et al., "Going deeper with image
/// transformers", 2021.
///
/// ```
/// use towers_layers::{Graph, LayerScale};
///
/// let mut graph = Graph::new("scaled", [8, 8, 6]);
/// let y = graph.add(LayerScale::new(1e-6), graph.input())?;
/// assert_eq!(graph.shape(y), graph.shape(graph.input()));
/// # Ok::<(), towers_layers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerScale {
    initial: f32,
}

impl LayerScale {
    /// Factors that begin with this number.
    pub fn new(initial: f32) -> Self {
        LayerScale { initial }
    }
}

impl Layer for LayerScale {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let init = Initializer::PerChannel([self.initial; 3]);
        vec![ParamSpec { name: "layer_scale", shape: vec![inputs[0].c], init, role: Role::Trainable }]
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let conv = Depthwise::per_channel(to.shape(inputs[0]).c);
        let operands = [inputs, to.params()].concat();
        to.push(ops::DepthwiseForward { conv, act: Activation::None }, &operands)
    }
}
