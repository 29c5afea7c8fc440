use crate::BackwardReads;
use tensor::{Activation, Backend, Device, Result, Storage, View, ViewMut};

/// The sum of two tensors, with an activation fused into it: the end of a residual block. [`Graph::merge`](crate::Graph::merge)
/// takes it.
///
/// Not a [`Layer`](crate::Layer), which reads one tensor: who adds what, and in which memory, is for the network to know.
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

    /// The mask of the activation is in the output.
    pub(crate) fn backward_reads(self) -> BackwardReads {
        if self.activation == Activation::None { BackwardReads::NOTHING } else { BackwardReads::OUTPUT }
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

    /// `y = act(y + x)`.
    pub(crate) fn forward(self, device: &Device, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        device.add_act(self.activation, x, y)
    }

    /// Makes of the sum's gradient `dy` that of both operands.
    pub(crate) fn backward(self, device: &Device, y: View<Storage>, dy: ViewMut<Storage>) -> Result<()> {
        match self.activation {
            Activation::None => Ok(()),
            act => device.act_bwd_in_place(act, y, dy),
        }
    }
}
