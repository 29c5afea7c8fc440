use crate::{Layer, Lower};
use core::ops::RangeInclusive;
use towers_program::{Result, TensorId, ops};

/// Joins tensors along their channels: Keras' `Concatenate`.
///
/// This costs nothing if each layer before it can write into its slice of the result. A tensor that is joined
/// twice is copied. So is one that a layer reads to write another slice.
///
/// ```
/// use towers_layers::{Concatenate, Conv2D, Graph};
///
/// let mut graph = Graph::new("branches", [8, 8, 3]);
/// let a = graph.add(Conv2D::new(16, 1), graph.input())?;
/// let b = graph.add(Conv2D::new(8, 3).same(), graph.input())?;
/// let both = graph.add(Concatenate, [a, b])?;
/// assert_eq!(graph.shape(both).c, 24);
/// # Ok::<(), towers_layers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Concatenate;

impl Layer for Concatenate {
    fn inputs(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::Concat, inputs)
    }

    fn only_joins(&self) -> bool {
        true
    }
}
