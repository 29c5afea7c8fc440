//! Layers that are matrix products, and their passes.

use towers_program::{Conv2d, Linear};

/// One of the three computations of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    Forward,
    /// The gradient of the input.
    Data,
    /// The gradient of the weights.
    Filter,
}

/// A layer that is a matrix product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layer<'a> {
    Conv(&'a Conv2d),
    Linear(&'a Linear),
}

impl Layer<'_> {
    /// The layer as a convolution: a dense one has a single pixel.
    pub(crate) fn conv(self) -> Conv2d {
        match self {
            Layer::Conv(conv) => *conv,
            Layer::Linear(&Linear { inputs, outputs }) => Conv2d::new(inputs, outputs, [1; 2]),
        }
    }

    /// The name of a pass in errors.
    pub(crate) fn op(self, pass: Pass) -> &'static str {
        match (self, pass) {
            (Layer::Conv(_), Pass::Forward) => "conv2d_fwd",
            (Layer::Conv(_), Pass::Data) => "conv2d_bwd_data",
            (Layer::Conv(_), Pass::Filter) => "conv2d_bwd_filter",
            (Layer::Linear(_), Pass::Forward) => "linear_fwd",
            (Layer::Linear(_), Pass::Data) => "linear_bwd_data",
            (Layer::Linear(_), Pass::Filter) => "linear_bwd_filter",
        }
    }
}
