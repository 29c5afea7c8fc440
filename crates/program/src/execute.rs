use crate::{Arena, Executable, Ints, Result, Storage};
use core::any::Any;

/// The numbers that differ from one run of a program to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepArgs {
    /// Samples in the batch.
    pub n: usize,
    /// Samples of all replicas: the loss's gradient is divided by them.
    pub global_batch: usize,
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from the start of the run.
    pub step: u64,
    /// The place of the first sample in the global batch.
    pub first_sample: u32,
    /// The loss's label smoothing.
    pub label_smoothing: f32,
    /// Whether each sample has a [`Target`](crate::Target) instead of one label.
    pub targets: bool,
}

impl StepArgs {
    /// An inference pass over `n` samples.
    pub const fn inference(n: usize) -> Self {
        StepArgs {
            n,
            global_batch: n,
            seed: 0,
            step: 0,
            first_sample: 0,
            label_smoothing: 0.0,
            targets: false,
        }
    }
}

/// The memory that a program works on, by [`Arena`].
#[derive(Debug)]
pub struct Memory<'a, B = Storage, I = Ints> {
    /// As [`Backend::alloc_activations`](crate::Backend::alloc_activations) gives it.
    pub activations: &'a mut B,
    /// As [`Backend::alloc`](crate::Backend::alloc) gives it, like all that follow.
    pub statistics: &'a mut B,
    /// The parameters.
    pub params: &'a B,
    /// Gradients, sums, metrics.
    pub grads: &'a mut B,
    /// Running averages.
    pub averages: &'a B,
    /// The labels.
    pub labels: &'a I,
}

impl<'a> Memory<'a> {
    /// The memory of a device, whose own is of these types.
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::Error::DeviceMismatch) if some is another device's.
    pub fn on<B: Any, I: Any>(self) -> Result<Memory<'a, B, I>> {
        let (op, Memory { activations, statistics, params, grads, averages, labels }) = ("run", self);
        Ok(Memory {
            activations: activations.on_mut(op)?,
            statistics: statistics.on_mut(op)?,
            params: params.on(op)?,
            grads: grads.on_mut(op)?,
            averages: averages.on(op)?,
            labels: labels.on(op)?,
        })
    }
}

impl Executable {
    /// Checks the sizes of all arenas and of the batch: what [`Backend::run`](crate::Backend::run) does first.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) for the first that is too small.
    pub fn check_memory(&self, args: &StepArgs, lens: [usize; Arena::ALL.len()]) -> Result<()> {
        crate::Span::new(0, args.n).check("run", "the batch", self.batch())?;
        Arena::ALL.into_iter().zip(lens).try_for_each(|(arena, len)| self.check_len(arena, len))
    }
}
