use crate::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use tensor_cuda::nccl::Communicator;

/// State that outlives the collective of a body.
pub(super) struct Shared {
    /// Reports this process's step.
    pub(super) at_step: Box<dyn Fn(u64) + Send + Sync>,
    /// Reports that this process has come to a collective.
    pub(super) enter: Box<dyn Fn() + Send + Sync>,
    /// The communicators, after their collectives were dropped.
    pub(super) parted: Mutex<Vec<Communicator>>,
    /// Whether a call failed through this process's own fault.
    pub(super) at_fault: AtomicBool,
}

impl Shared {
    /// Whether the failure is this process's own: the group is intact, or the request was impossible.
    pub(super) fn is_at_fault(&self) -> bool {
        let parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        self.at_fault.load(Ordering::Relaxed) || parted.iter().any(|group| !group.has_ended())
    }

    fn parted(&self) -> Vec<Communicator> {
        std::mem::take(&mut *self.parted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until all processes have finished, and closes the group.
    pub(super) fn part(&self) -> Result<()> {
        (self.enter)();
        let mut parted = self.parted();
        // Each waits for all others, also for those of this process.
        let parted_all = std::thread::scope(|scope| {
            let barriers = parted.iter_mut().map(|communicator| scope.spawn(|| communicator.barrier()));
            let barriers: Vec<_> = barriers.collect();
            let join = |barrier: ScopedJoinHandle<'_, program::Result<()>>| {
                barrier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            barriers.into_iter().try_for_each(join)
        });
        parted.iter_mut().for_each(Communicator::begin_close);
        Ok(parted_all?)
    }

    /// Ends the group without waiting.
    pub(super) fn abort(&self, reason: &str) {
        self.parted().iter().for_each(|communicator| communicator.abort(reason));
    }
}
