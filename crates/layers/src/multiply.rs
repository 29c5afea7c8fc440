use crate::{Layer, Lower};
use core::ops::RangeInclusive;
use towers_program::ops::{How, Merge};
use towers_program::{Result, TensorId};

/// The product of two tensors of one shape, or of a tensor with one number for each of its channels, (1, 1, channels), or for each of
/// its pixels, (rows, columns, 1). Keras' `Multiply()([a, b])`.
///
/// ```
/// use towers_layers::{Conv2D, GlobalAveragePooling2D, Graph, Multiply, Reshape};
/// use towers_program::Activation::Sigmoid;
///
/// // Squeeze and excite.
/// let mut graph = Graph::new("gate", [8, 8, 16]);
/// let x = graph.input();
/// let means = graph.add(GlobalAveragePooling2D, x)?;
/// let means = graph.add(Reshape::to([1, 1, 16]), means)?;
/// let gate = graph.add(Conv2D::new(16, 1), means)?;
/// let gate = graph.add(Sigmoid, gate)?;
/// let y = graph.add(Multiply, [x, gate])?;
/// assert_eq!(graph.shape(y), graph.shape(x));
/// # Ok::<(), towers_layers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multiply;

impl Layer for Multiply {
    fn inputs(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        merge(to, How::Product, inputs)
    }
}

/// The product or sum of two tensors, in which the smaller one is spread.
pub(crate) fn merge(to: &mut Lower, how: How, inputs: &[TensorId]) -> Result<TensorId> {
    let mut operands = inputs.to_vec();
    // The larger one comes first. The sort keeps the order of tensors of one size.
    operands.sort_by_key(|&x| core::cmp::Reverse(to.shape(x).per_sample()));
    to.push(Merge { how }, &operands)
}
