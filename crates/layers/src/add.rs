use crate::activation::{check_fused, fused};
use crate::multiply::merge;
use crate::{Layer, Lower};
use core::ops::RangeInclusive;
use std::borrow::Cow;
use towers_program::{Activation, Result, TensorId, ops};

/// The sum of two tensors, with an activation fused into it: the end of a residual block. Keras' `Add()([a, b])`.
/// Both have one shape, or the smaller one has one number for each channel or pixel, as for a [`Multiply`](crate::Multiply).
///
/// If they have one shape and no other layer reads one of them, the sum is computed in its place, and the gradient of the sum
/// serves as both gradients.
///
/// ```
/// use towers_layers::{Add, BatchNormalization, Conv2D, Graph};
/// use towers_program::Activation::Relu;
///
/// let mut graph = Graph::new("residual", [8, 8, 3]);
/// let x = graph.add(Conv2D::new(16, 3).same(), graph.input())?;
/// let y = graph.add(Conv2D::new(16, 3).same(), x)?;
/// let y = graph.add(BatchNormalization::new(), y)?;
/// let sum = graph.add(Add::new().activation(Relu), [y, x])?;
/// assert_eq!(graph.shape(sum), graph.shape(x));
/// # Ok::<(), towers_layers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Add {
    activation: Activation,
}

impl Add {
    /// A sum without an activation.
    pub fn new() -> Self {
        Self::default()
    }

    /// The activation after the sum: none or a ReLU. Others must be separate layers.
    pub fn activation(self, activation: Activation) -> Self {
        Add { activation }
    }
}

impl Layer for Add {
    fn kind(&self) -> Cow<'static, str> {
        fused("Add", self.activation)
    }

    fn inputs(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        check_fused("add", self.activation)?;
        let [a, b] = [inputs[0], inputs[1]].map(|x| to.shape(x));
        if a == b {
            return to.push(ops::Add { act: self.activation }, inputs);
        }
        let sum = merge(to, ops::How::Sum, inputs)?;
        match self.activation {
            Activation::None => Ok(sum),
            act => to.push(ops::Activate { act }, &[sum]),
        }
    }
}
