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
}
