use crate::{Layer, Lower};
use towers_program::{Result, TensorId, ops};

/// One vector a sample, in the order `(row, column, channel)`, as Keras' `Flatten` makes of channels-last images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flatten;

impl Layer for Flatten {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::Reshape { to: to.shape(inputs[0]).flatten() }, inputs)
    }

    fn makes_vectors(&self) -> bool {
        true
    }
}
