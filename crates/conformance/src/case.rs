use crate::{Bench, Output};
use core::fmt::Debug;
use towers_program::Result;

/// Ops with operands to run them on.
pub trait Case: Debug {
    /// Runs the ops and returns all that they wrote.
    ///
    /// # Errors
    /// Those of the ops.
    fn run(&self, bench: &Bench) -> Result<Vec<Output>>;

    /// Whether matrices are multiplied in f32 for every format of activations: the bits then depend on the instruction set.
    fn multiplies_in_f32(&self) -> bool {
        false
    }
}
