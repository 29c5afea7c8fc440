mod clipping;
mod groups;
mod state;

pub use state::OptimizerState;

use crate::{Ints, Span, Storage};
use towers_optim::{Clip, WeightDecay};

/// A run of parameters that a step treats alike: PyTorch's parameter group, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamRun {
    /// Its place in the arenas.
    pub at: Span,
    /// The factor of the step's learning rate; 1 changes no bit.
    pub lr_multiplier: f32,
    /// Takes the place of the optimizer's.
    pub weight_decay: WeightDecay,
}

impl ParamRun {
    /// A run that keeps the learning rate.
    pub const fn new(at: Span, weight_decay: WeightDecay) -> Self {
        ParamRun { at, lr_multiplier: 1.0, weight_decay }
    }
}

/// Gradients that are clipped together: see [`Backend::clip_grads`](crate::Backend::clip_grads).
#[derive(Debug)]
pub struct ClippedGrads {
    /// The way of clipping.
    pub clip: Clip,
    /// The places of the gradients in their arena, one for each parameter.
    pub at: Vec<Span>,
    /// The same on the device: the offset and the length of each. A table of other places never reaches
    /// outside of the arena.
    pub table: Ints,
    /// Their norms before clipping. Clipping by value leaves them alone.
    pub norms: Storage,
}
