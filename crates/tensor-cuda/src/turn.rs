//! What changes from one step to the next of a recording, in device memory: the host's side of `struct Turn`.

use crate::Cuda;
use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use tensor_backend::Result;

pub(crate) const SOURCE: Source = Source {
    name: "turn.cu",
    text: include_str!("../kernels/turn.cu"),
    kernels: &["set_turn", "set_step", "set_lr", "set_first", "reset_turn"],
};

/// Bytes of `struct Turn` in towers.cuh.
pub(crate) const BYTES: usize = 40;

/// The numbers that differ between the steps of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// The training step, for dropout.
    pub step: u64,
    /// The learning rate of the optimizer's step.
    pub lr: f32,
    /// The first place of the batch in the epoch's order, for images that the device loads.
    pub first: u32,
}

const ONE: fn() -> Geometry = || Geometry::line(1, 1);

impl Cuda {
    /// Where the device keeps its [`Turn`]: the first argument of kernels that read it.
    pub(crate) fn turn(&self) -> Ptr {
        self.inner.turn.ptr()
    }

    /// Sets all of it, before a replay.
    pub(crate) fn set_turn(&self, turn: &Turn) -> Result<()> {
        self.launch("set_turn", ONE(), args![self.turn(), turn.step, turn.lr, turn.first])
    }

    /// Sets the step for an op that runs now. In a recording the replay does that.
    pub(crate) fn set_step(&self, step: u64) -> Result<()> {
        self.unless_recording("set_step", args![self.turn(), step])
    }

    /// Sets the learning rate for an op that runs now.
    pub(crate) fn set_lr(&self, lr: f32) -> Result<()> {
        self.unless_recording("set_lr", args![self.turn(), lr])
    }

    /// Sets the first place for an op that runs now.
    pub(crate) fn set_first(&self, first: u32) -> Result<()> {
        self.unless_recording("set_first", args![self.turn(), first])
    }

    /// Puts it back to the state before the first step.
    pub(crate) fn reset_turn(&self, loss_scale: f32) -> Result<()> {
        self.launch("reset_turn", ONE(), args![self.turn(), loss_scale])
    }

    fn unless_recording(&self, kernel: &'static str, args: &[crate::driver::Arg]) -> Result<()> {
        if self.is_recording() { Ok(()) } else { self.launch(kernel, ONE(), args) }
    }
}
