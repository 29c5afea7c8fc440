use super::Mpi;
use super::queue::Command;
use super::thread::WorkerHandle;
use crate::abort::Abortable;
use crate::system::RwLock;
use crate::{Result, SumTree};
use program::Span;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tensor_cpu::Buffer as HostBuffer;

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
        Across { worker: Arc::clone(&mpi.worker), process: mpi.rank(), mpi: Mutex::new(mpi), firsts }
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

    fn lock(&self) -> MutexGuard<'_, Mpi> {
        self.mpi.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `sums` to the sum along a tree of all replicas. `bring` gets the place for the nodes of this
    /// process, so many of `len` numbers.
    pub(crate) fn add_up(
        &self,
        tree: &SumTree,
        nodes: usize,
        len: usize,
        sums: &RwLock<Vec<f32>>,
        bring: impl FnOnce(&mut [f32]),
    ) -> Result<()> {
        let (mut mpi, tree) = (self.lock(), tree.grouped(&self.firsts));
        let mut buffer = mpi.take_buffer(nodes.max(1) * len);
        bring(&mut buffer[..nodes * len]);
        let mut sums = sums.write().unwrap_or_else(PoisonError::into_inner);
        ask(&mut mpi, Command::Reduce { buffer, first: 0, nodes, len, tree }, &mut sums, len)
    }

    /// Sets `numbers` to those of the process with the replica `root`.
    pub(crate) fn broadcast(&self, numbers: &mut Vec<f32>, root: usize) -> Result<()> {
        let root = self.firsts.iter().take_while(|first| **first <= root).count() - 1;
        let (mut mpi, len) = (self.lock(), numbers.len());
        let buffer = copied(&mut mpi, numbers);
        ask(&mut mpi, Command::Broadcast { buffer, at: Span::new(0, len), root }, numbers, len)
    }

    /// Completes the numbers, an equal part of which is each replica's.
    pub(crate) fn all_gather(&self, numbers: &mut Vec<f32>) -> Result<()> {
        let (mut mpi, len) = (self.lock(), numbers.len());
        let buffer = copied(&mut mpi, numbers);
        ask(&mut mpi, Command::Gather { buffer, at: Span::new(0, len) }, numbers, len)
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        self.worker.ask(Command::Barrier).map(|_| ())
    }
}

fn copied(mpi: &mut Mpi, numbers: &[f32]) -> HostBuffer {
    let mut buffer = mpi.take_buffer(numbers.len());
    buffer[..numbers.len()].copy_from_slice(numbers);
    buffer
}

/// Asks the worker thread, and copies its answer to `numbers`.
fn ask(mpi: &mut Mpi, command: Command, numbers: &mut Vec<f32>, len: usize) -> Result<()> {
    let buffer = mpi.worker.ask(command)?;
    numbers.clear();
    numbers.extend_from_slice(&buffer[..len]);
    mpi.keep_buffer(0, buffer);
    Ok(())
}

/// A thread of this process that fails ends the wait of the one that waits for the other processes.
impl Abortable for Across {
    fn abort(&self, _: usize, reason: &str) -> bool {
        self.worker.call_off(reason);
        false
    }

    fn leave(&self, _: &str) {}
}
