use crate::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tensor_cuda::nccl::Communicator;

/// State that outlives the collective of a body.
pub(super) struct Shared {
    /// Reports this process's step.
    pub(super) at_step: Box<dyn Fn(u64) + Send + Sync>,
    /// Reports that this process has come to a collective.
    pub(super) enter: Box<dyn Fn() + Send + Sync>,
    /// The communicator, after the collective was dropped.
    pub(super) parted: Mutex<Option<Communicator>>,
    /// Whether a call failed through this process's own fault.
    pub(super) at_fault: AtomicBool,
}

impl Shared {
    /// Whether the failure is this process's own: the group is intact, or the request was impossible.
    pub(super) fn is_at_fault(&self) -> bool {
        let parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        self.at_fault.load(Ordering::Relaxed) || parted.as_ref().is_some_and(|group| !group.has_ended())
    }

    fn parted(&self) -> Option<Communicator> {
        self.parted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until all processes have finished, and closes the group.
    pub(super) fn part(&self) -> Result<()> {
        (self.enter)();
        Ok(self.parted().map_or(Ok(()), |mut communicator| communicator.barrier())?)
    }

    /// Ends the group without waiting.
    pub(super) fn abort(&self, reason: &str) {
        if let Some(communicator) = self.parted() {
            communicator.abort(reason);
        }
    }
}
