use crate::activation::fused;
use program::Activation;
use std::borrow::Cow;

/// The sum of two tensors, with an activation fused into it: the end of a residual block. [`Graph::merge`](crate::Graph::merge)
/// takes it.
///
/// Not a [`Layer`](crate::Layer), which reads one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Add {
    activation: Activation,
}

impl Add {
    /// A sum without an activation.
    pub fn new() -> Self {
        Self::default()
    }

    /// The activation after the sum: none or ReLU. Others must be separate layers.
    pub fn activation(self, activation: Activation) -> Self {
        Add { activation }
    }

    pub(crate) fn kind(self) -> Cow<'static, str> {
        fused("Add", self.activation)
    }

    pub(crate) fn act(self) -> Activation {
        self.activation
    }
}
