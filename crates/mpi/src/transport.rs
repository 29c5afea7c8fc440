use crate::Mpi;
use crate::communicator::Lost;
use crate::thread::WorkerHandle;
use crate::worker::Worker;
use std::sync::{Arc, Mutex, PoisonError};
use towers_parallel::{Bring, Result, SumTree, Take, Transport};

/// MPI between processes of several replicas. One thread at a time uses it, while the others of this process wait.
pub(crate) struct Between {
    mpi: Mutex<Mpi>,
    worker: Arc<WorkerHandle>,
}

impl Between {
    pub(crate) fn new(mpi: Mpi) -> Between {
        Between { worker: Arc::clone(&mpi.worker), mpi: Mutex::new(mpi) }
    }

    /// Lets the worker thread work on `room` numbers that `bring` writes, and hands out the first `len` of them.
    fn exchange(
        &self,
        room: usize,
        len: usize,
        bring: impl FnOnce(&mut [f32]) -> Result<()>,
        take: &mut Take<'_>,
        job: impl FnOnce(&mut Worker, &mut [f32]) -> Result<(), Lost> + Send + 'static,
    ) -> Result<()> {
        let mut mpi = self.mpi.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = mpi.take_buffer(room);
        bring(&mut buffer[..room])?;
        let buffer = self.worker.ask(move |worker| {
            job(worker, &mut buffer[..room])?;
            Ok(buffer)
        })?;
        take(&buffer[..len]);
        mpi.keep_buffer(0, buffer);
        Ok(())
    }
}

impl Transport for Between {
    fn all_reduce(
        &self,
        tree: &SumTree,
        nodes: usize,
        len: usize,
        bring: &mut Bring<'_>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let (tree, room) = (tree.clone(), nodes.max(1) * len);
        let job = move |worker: &mut Worker, numbers: &mut [f32]| worker.reduce(numbers, nodes, len, &tree);
        self.exchange(room, len, |numbers| bring(&mut numbers[..nodes * len]), take, job)
    }

    fn broadcast(&self, len: usize, root: usize, bring: &mut Bring<'_>, take: &mut Take<'_>) -> Result<()> {
        self.exchange(len, len, bring, take, move |worker, numbers| worker.broadcast(numbers, root))
    }

    fn all_gather(&self, len: usize, bring: &mut Bring<'_>, take: &mut Take<'_>) -> Result<()> {
        self.exchange(len, len, bring, take, |worker, numbers| worker.all_gather(numbers))
    }

    fn barrier(&self) -> Result<()> {
        self.worker.barrier()
    }

    fn call_off(&self, reason: &str) {
        self.worker.call_off(reason);
    }
}
