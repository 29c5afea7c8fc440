use super::Mpi;
use super::communicator::Lost;
use super::thread::WorkerHandle;
use super::worker::Worker;
use crate::local::abort::Abortable;
use crate::system::RwLock;
use crate::{Result, SumTree};
use std::sync::{Arc, Mutex, PoisonError};

/// The way from the replicas of this process to those of the others. One thread at a time uses it, while the
/// others of this process wait.
pub(crate) struct Across {
    mpi: Mutex<Mpi>,
    worker: Arc<WorkerHandle>,
    process: usize,
    /// The first replica of each process; then the number of all replicas.
    firsts: Vec<usize>,
}

impl Across {
    /// `replicas` is the number of replicas of each process.
    pub(super) fn new(mpi: Mpi, replicas: &[usize]) -> Across {
        let mut firsts = vec![0];
        replicas.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        Across { worker: Arc::clone(&mpi.worker), process: mpi.place.rank, mpi: Mutex::new(mpi), firsts }
    }

    /// This process's first replica.
    pub(crate) fn first(&self) -> usize {
        self.firsts[self.process]
    }

    /// The number of replicas of all processes.
    pub(crate) fn world(&self) -> usize {
        self.firsts[self.firsts.len() - 1]
    }

    /// The number of a replica within this process, if it is one of this process.
    pub(crate) fn within(&self, replica: usize) -> Option<usize> {
        (self.firsts[self.process]..self.firsts[self.process + 1])
            .contains(&replica)
            .then(|| replica - self.first())
    }

    /// Sets `sums` to the sum along a tree of all replicas. `bring` gets the place for the nodes of this
    /// process, so many of `len` numbers.
    pub(crate) fn add_up(
        &self,
        tree: &SumTree,
        nodes: usize,
        len: usize,
        sums: &RwLock<Vec<f32>>,
        bring: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let (tree, room) = (tree.grouped(&self.firsts), nodes.max(1) * len);
        let job = move |worker: &mut Worker, numbers: &mut [f32]| worker.reduce(numbers, nodes, len, &tree);
        self.exchange(room, len, sums, |numbers| bring(&mut numbers[..nodes * len]), job)
    }

    /// Sets `sums` to the `len` numbers of the process with the replica `root`, which `bring` writes there.
    pub(crate) fn broadcast(
        &self,
        len: usize,
        root: usize,
        sums: &RwLock<Vec<f32>>,
        bring: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let root = self.firsts.iter().take_while(|first| **first <= root).count() - 1;
        self.exchange(len, len, sums, bring, move |worker, numbers| worker.broadcast(numbers, root))
    }

    /// Sets `sums` to `len` numbers, an equal part of which is each replica's. `bring` writes those of this
    /// process.
    pub(crate) fn all_gather(
        &self,
        len: usize,
        sums: &RwLock<Vec<f32>>,
        bring: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        self.exchange(len, len, sums, bring, |worker, numbers| worker.all_gather(numbers))
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        self.worker.barrier()
    }

    /// Lets the worker thread work on numbers that `bring` writes, and copies the first `len` of them to `sums`.
    fn exchange(
        &self,
        room: usize,
        len: usize,
        sums: &RwLock<Vec<f32>>,
        bring: impl FnOnce(&mut [f32]) -> Result<()>,
        job: impl FnOnce(&mut Worker, &mut [f32]) -> Result<(), Lost> + Send + 'static,
    ) -> Result<()> {
        let mut mpi = self.mpi.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = mpi.take_buffer(room);
        bring(&mut buffer[..room])?;
        let buffer = self.worker.ask(move |worker| {
            job(worker, &mut buffer[..room])?;
            Ok(buffer)
        })?;
        let mut sums = sums.write().unwrap_or_else(PoisonError::into_inner);
        sums.clear();
        sums.extend_from_slice(&buffer[..len]);
        mpi.keep_buffer(0, buffer);
        Ok(())
    }
}

/// A thread of this process that fails ends the wait of the one that waits for the other processes.
impl Abortable for Across {
    fn abort(&self, _: usize, reason: &str) -> bool {
        self.worker.call_off(reason);
        false
    }

    fn leave(&self, _: &str) {}
}
