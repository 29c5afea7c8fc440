use crate::Result;
use core::fmt::Debug;

/// The numbers that differ between replays of a captured graph.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplayArgs {
    /// The training step, for dropout.
    pub step: u64,
    /// The learning rate of the optimizer's step.
    pub lr: f32,
    /// The first place of the batch in the epoch's order, for images that the device loads.
    pub first: u32,
}

/// Captured work of a device. It contains memory addresses, so its user must keep every buffer of the work: a replay without
/// them is refused.
pub trait CapturedGraph: Debug + Send {
    /// The number of pieces of work, a kernel or a call into a library each, and the length of the longest
    /// chain of dependencies. Work of different chains may run side by side.
    fn size(&self) -> [usize; 2];

    /// Does the work again with the numbers of `args`.
    ///
    /// # Errors
    /// The errors of the device.
    fn replay(&self, args: &ReplayArgs) -> Result<()>;
}
