use crate::{Arena, Backend, Executable, Result};
use core::ops::Range;

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
    /// Whether each sample has two labels: a [`Target`](crate::Target) each.
    pub mixed: bool,
}

impl StepArgs {
    /// An inference pass over `n` samples.
    pub const fn inference(n: usize) -> Self {
        StepArgs { n, global_batch: n, seed: 0, step: 0, first_sample: 0, label_smoothing: 0.0, mixed: false }
    }
}

/// The memory that a program works on, by [`Arena`].
#[derive(Debug)]
pub struct Memory<'a, Buffer, Ints> {
    /// As [`Backend::alloc_activations`] gives it.
    pub activations: &'a mut Buffer,
    /// As [`Backend::alloc`] gives it, like all that follow.
    pub statistics: &'a mut Buffer,
    /// The parameters.
    pub params: &'a Buffer,
    /// Gradients, sums, metrics.
    pub grads: &'a mut Buffer,
    /// Running averages.
    pub averages: &'a Buffer,
    /// The labels.
    pub labels: &'a Ints,
}

/// A device that runs programs.
pub trait Execute: Backend {
    /// Plans the steps, and reserves their scratch memory.
    ///
    /// # Errors
    /// If there is too little memory.
    fn prepare(&self, program: &Executable) -> Result<()>;

    /// Runs some steps of a program, in order. [Exchanges](crate::Op::is_exchange) are the caller's: here they do nothing.
    ///
    /// # Errors
    /// If an arena is too small, or the device fails.
    fn run(
        &self,
        program: &Executable,
        steps: Range<usize>,
        args: &StepArgs,
        memory: Memory<'_, Self::Buffer, Self::Ints>,
    ) -> Result<()>;
}

impl Executable {
    /// Checks the sizes of all arenas and of the batch: what [`Execute::run`] does first.
    ///
    /// # Errors
    /// [`OutOfBounds`](crate::Error::OutOfBounds) for the first that is too small.
    pub fn check_memory(&self, args: &StepArgs, lens: [usize; Arena::ALL.len()]) -> Result<()> {
        crate::Span::new(0, args.n).check("run", "the batch", self.batch())?;
        Arena::ALL.into_iter().zip(lens).try_for_each(|(arena, len)| self.check_len(arena, len))
    }
}
