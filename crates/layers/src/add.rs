use tensor::Activation;

/// The sum of two tensors, with an activation fused into it: the end of a residual block. [`Graph::merge`](crate::Graph::merge)
/// takes it.
///
/// Not a [`Layer`](crate::Layer), which reads one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Add {
    activation: Activation,
}

impl Add {
    /// A sum that nothing follows.
    pub fn new() -> Self {
        Self::default()
    }

    /// What follows the sum; GELU must be a layer of its own.
    pub fn activation(self, activation: Activation) -> Self {
        Add { activation }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self.activation {
            Activation::None => "Add",
            Activation::Relu => "Add+ReLU",
            Activation::Gelu => "Add+GELU",
        }
    }

    pub(crate) fn act(self) -> Activation {
        self.activation
    }
}
