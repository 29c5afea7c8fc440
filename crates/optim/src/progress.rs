/// The position of a training run: all that a schedule may depend on.
///
/// ```
/// use towers_optim::Progress;
///
/// // Before the first step of the 4th of 10 epochs, with 391 steps each.
/// let progress = Progress::at_step(3 * 391, 391, 10);
/// assert_eq!(progress.epochs_done, 3);
/// assert_eq!(progress, Progress { step: 1173, epochs_done: 3, steps_per_epoch: 391, epochs: 10 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The number of optimizer steps before this one, over the whole run: Keras' `iterations`.
    pub step: u64,
    /// The number of whole epochs before this step: the `epoch` of Keras' `LearningRateScheduler`.
    pub epochs_done: u64,
    /// The steps of an epoch.
    pub steps_per_epoch: u64,
    /// The epochs of the whole run.
    pub epochs: u64,
}

impl Progress {
    /// Before the step with this number, counted from 0, in a run whose epochs are all equally long.
    pub fn at_step(step: u64, steps_per_epoch: u64, epochs: u64) -> Self {
        Progress { step, epochs_done: step / steps_per_epoch.max(1), steps_per_epoch, epochs }
    }
}
