//! The values in device memory that change between replays of a graph: the host's side of `struct StepState`.

use crate::Cuda;
use crate::dependencies::Region;
use crate::driver::{Geometry, Ptr, args};
use crate::source::Source;
use towers_program::{Precision, ReplayArgs, Result};

pub(crate) const SOURCE: Source = Source {
    name: "step_state.cu",
    text: include_str!("../kernels/step_state.cu"),
    kernels: &["set_step_state", "set_step", "set_lr", "set_first", "reset_step_state"],
};

/// Bytes of `struct StepState` in towers.cuh.
pub(crate) const BYTES: usize = 32;

/// The offsets of the loss scale, and of the good steps.
const LOSS_SCALE: usize = 16;
const GOOD_STEPS: usize = 20;

const ONE: fn() -> Geometry = || Geometry::line(1, 1);

impl Cuda {
    /// The address of the device's `StepState`: the first argument of kernels that read it.
    pub(crate) fn step_state(&self) -> Ptr {
        self.note(Region::run(self.inner.step_state.ptr(), BYTES), false);
        self.inner.step_state.ptr()
    }

    /// The same for kernels that write it.
    pub(crate) fn step_state_to_write(&self) -> Ptr {
        self.note_run(self.inner.step_state.ptr(), BYTES);
        self.inner.step_state.ptr()
    }

    /// Sets the values of `args`, before a replay.
    pub(crate) fn set_step_state(&self, args: &ReplayArgs) -> Result<()> {
        self.launch(
            "set_step_state",
            ONE(),
            args![self.step_state_to_write(), args.step, args.lr, args.first],
        )
    }

    /// Sets the step for an op that runs now. In a capture, the replay does that.
    pub(crate) fn set_step(&self, step: u64) -> Result<()> {
        self.unless_capturing("set_step", args![self.step_state_to_write(), step])
    }

    /// Sets the learning rate for an op that runs now.
    pub(crate) fn set_lr(&self, lr: f32) -> Result<()> {
        self.unless_capturing("set_lr", args![self.step_state_to_write(), lr])
    }

    /// Sets the first place for an op that runs now.
    pub(crate) fn set_first(&self, first: u32) -> Result<()> {
        self.unless_capturing("set_first", args![self.step_state_to_write(), first])
    }

    /// Resets it to the state before a step.
    pub(crate) fn reset_step_state(&self, loss_scale: f32, good_steps: u32) -> Result<()> {
        self.launch("reset_step_state", ONE(), args![self.step_state_to_write(), loss_scale, good_steps])
    }

    /// See `Backend::loss_scale`.
    pub(crate) fn read_loss_scale(&self) -> Result<Option<[f32; 2]>> {
        if self.options().precision != Precision::Fp16 {
            return Ok(None);
        }
        let mut bytes = [0; BYTES];
        // SAFETY: the device's `ReplayArgs` has that many bytes.
        unsafe { self.driver().read(self.step_state(), &mut bytes)? };
        let word = |at: usize| core::array::from_fn(|k| bytes[at + k]);
        Ok(Some([f32::from_le_bytes(word(LOSS_SCALE)), u32::from_le_bytes(word(GOOD_STEPS)) as f32]))
    }

    fn unless_capturing(&self, kernel: &'static str, args: &[crate::driver::Arg]) -> Result<()> {
        if self.is_capturing() { Ok(()) } else { self.launch(kernel, ONE(), args) }
    }
}
