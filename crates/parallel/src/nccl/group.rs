use crate::local::barrier::Barrier;
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use towers_rendezvous::Watchdog;
use towers_tensor_cuda::nccl::Communicator;

/// What the members of a group of [`Nccl`](crate::Nccl) share, on threads of one process. Its communicators are closed
/// with it.
pub struct NcclGroup {
    pub(crate) failures: Failures,
    /// The communicators of dropped members. They are closed together, after the last one.
    parted: Mutex<Vec<Communicator>>,
    /// Whether a call failed through this process's own fault.
    pub(super) at_fault: AtomicBool,
}

/// What knows of failures.
#[derive(Clone)]
pub(crate) struct Failures {
    /// Of the threads of this process.
    pub(crate) barrier: Arc<Barrier>,
    /// Of other processes.
    pub(super) watch: Option<Watchdog>,
}

impl Failures {
    /// The failure of a thread or a process, if there is one.
    pub(super) fn first(&self) -> Option<String> {
        self.barrier.failure().or_else(|| self.watch.as_ref().and_then(Watchdog::failed))
    }
}

impl NcclGroup {
    pub(super) fn new(failures: Failures) -> NcclGroup {
        NcclGroup { failures, parted: Mutex::default(), at_fault: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Communicator>> {
        self.parted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the communicator of a member that is dropped.
    pub(super) fn keep(&self, communicator: Communicator) {
        self.lock().push(communicator);
    }

    /// Whether the failure is this process's own: the request was impossible, the group is intact, or it ended for the
    /// failure of a thread of this process. NCCL's errors come from others.
    pub(super) fn is_at_fault(&self) -> bool {
        let parted = self.lock();
        let is_told = !parted.is_empty() && !parted.iter().any(Communicator::has_failed);
        self.at_fault.load(Ordering::Relaxed) || is_told || parted.iter().any(|parted| !parted.has_ended())
    }

    /// Waits until all processes have finished, and closes the group. The members have been dropped.
    pub(super) fn part(&self) -> Result<()> {
        let mut parted = std::mem::take(&mut *self.lock());
        // Each waits for all others, also for those of this process.
        let parted_all = std::thread::scope(|scope| {
            let barriers = parted.iter_mut().map(|communicator| scope.spawn(|| communicator.barrier()));
            let barriers: Vec<_> = barriers.collect();
            let join = |barrier: ScopedJoinHandle<'_, towers_program::Result<()>>| {
                barrier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            barriers.into_iter().try_for_each(join)
        });
        parted.iter_mut().for_each(Communicator::begin_close);
        parted_all.map_err(Error::from)
    }

    /// Ends the group without waiting.
    pub(super) fn abort(&self, reason: &str) {
        std::mem::take(&mut *self.lock()).iter().for_each(|communicator| communicator.abort(reason));
    }
}

impl Drop for NcclGroup {
    fn drop(&mut self) {
        let panics = || std::thread::panicking().then(|| "this rank panicked".to_owned());
        let parted = self.parted.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.failures.barrier.failure().or_else(panics) {
            parted.iter().for_each(|communicator| communicator.abort(&reason));
        }
        parted.iter_mut().for_each(Communicator::begin_close);
    }
}
