//! Where a layer is added to a graph.

use super::options::Options;
use super::zeros::Tensor;
use towers_layers::{Graph, Layer, Padding, Result, Value};
use towers_program::Activation;

/// Where a layer is added.
pub(super) struct Site<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) options: Options<'a>,
    pub(super) inputs: Vec<Tensor>,
    /// The activation to fuse.
    pub(super) act: Activation,
    /// The number of classes, for the last dense layer without `units`.
    pub(super) classes: Option<usize>,
    /// Whether all that read it [can pad](Class::pads).
    pub(super) readers_pad: bool,
}

impl Site<'_> {
    /// All inputs, for a layer that can't add zeros.
    pub(super) fn values(&self) -> Result<Vec<Value>> {
        self.inputs.iter().map(|x| x.without_zeros(&self.options)).collect()
    }

    /// Adds a layer that reads the first input.
    pub(super) fn add(&mut self, layer: impl Layer + 'static) -> Result<Tensor> {
        let x = self.inputs[0].without_zeros(&self.options)?;
        Ok(Tensor::of(self.graph.add_named(self.options.name, layer, x)?))
    }

    /// Windows, their strides, and the padding with the zeros before it.
    pub(super) fn windows(&self) -> Result<([usize; 2], [usize; 2], Padding)> {
        let pool = self.options.pair("pool_size")?.unwrap_or([2; 2]);
        let strides = self.options.pair("strides")?.unwrap_or(pool);
        let padding = self.inputs[0].padding(self.graph, self.options.padding()?, pool, strides);
        Ok((pool, strides, padding))
    }

    /// Adds a layer that takes the zeros before it as its padding.
    pub(super) fn add_padded(&mut self, layer: impl Layer + 'static) -> Result<Tensor> {
        Ok(Tensor::of(self.graph.add_named(self.options.name, layer, self.inputs[0].value)?))
    }
}
