//! What changes from one step to the next of a recording, in device memory: the host's side of `struct Turn`.

use crate::Cuda;
use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use crate::strands::Region;
use program::{Precision, Result, Turn};

pub(crate) const SOURCE: Source = Source {
    name: "turn.cu",
    text: include_str!("../kernels/turn.cu"),
    kernels: &["set_turn", "set_step", "set_lr", "set_first", "reset_turn"],
};

/// Bytes of `struct Turn` in towers.cuh.
pub(crate) const BYTES: usize = 32;

/// Where in it the loss scale lies, and the good steps.
const LOSS_SCALE: usize = 16;
const GOOD_STEPS: usize = 20;

const ONE: fn() -> Geometry = || Geometry::line(1, 1);

impl Cuda {
    /// Where the device keeps its [`Turn`]: the first argument of kernels that read it.
    pub(crate) fn turn(&self) -> Ptr {
        self.note(Region::run(self.inner.turn.ptr(), BYTES), false);
        self.inner.turn.ptr()
    }

    /// The same for kernels that write it.
    pub(crate) fn turn_to_write(&self) -> Ptr {
        self.note_run(self.inner.turn.ptr(), BYTES);
        self.inner.turn.ptr()
    }

    /// Sets all of it, before a replay.
    pub(crate) fn set_turn(&self, turn: &Turn) -> Result<()> {
        self.launch("set_turn", ONE(), args![self.turn_to_write(), turn.step, turn.lr, turn.first])
    }

    /// Sets the step for an op that runs now. In a recording the replay does that.
    pub(crate) fn set_step(&self, step: u64) -> Result<()> {
        self.unless_recording("set_step", args![self.turn_to_write(), step])
    }

    /// Sets the learning rate for an op that runs now.
    pub(crate) fn set_lr(&self, lr: f32) -> Result<()> {
        self.unless_recording("set_lr", args![self.turn_to_write(), lr])
    }

    /// Sets the first place for an op that runs now.
    pub(crate) fn set_first(&self, first: u32) -> Result<()> {
        self.unless_recording("set_first", args![self.turn_to_write(), first])
    }

    /// Puts it back to the state before a step.
    pub(crate) fn reset_turn(&self, loss_scale: f32, good_steps: u32) -> Result<()> {
        self.launch("reset_turn", ONE(), args![self.turn_to_write(), loss_scale, good_steps])
    }

    /// See `Backend::loss_scale`.
    pub(crate) fn read_loss_scale(&self) -> Result<Option<[f32; 2]>> {
        if self.options().precision != Precision::Fp16 {
            return Ok(None);
        }
        let mut bytes = [0; BYTES];
        // SAFETY: the device's `Turn` has that many bytes.
        unsafe { self.driver().read(self.turn(), &mut bytes)? };
        let word = |at: usize| core::array::from_fn(|k| bytes[at + k]);
        Ok(Some([f32::from_le_bytes(word(LOSS_SCALE)), u32::from_le_bytes(word(GOOD_STEPS)) as f32]))
    }

    fn unless_recording(&self, kernel: &'static str, args: &[crate::driver::Arg]) -> Result<()> {
        if self.is_recording() { Ok(()) } else { self.launch(kernel, ONE(), args) }
    }
}
