use super::abort::Abortable;
use crate::system::RwLock;
use crate::{Result, SumTree};
use std::sync::PoisonError;

/// Writes the numbers of this process to where a [`Transport`] wants them.
pub type Bring<'a> = dyn FnMut(&mut [f32]) -> Result<()> + 'a;

/// Gets the numbers that came out.
pub type Take<'a> = dyn FnMut(&[f32]) + 'a;

/// What carries numbers between processes. All of them call the same operations in the same order, one thread of
/// each. Every wait must be bounded.
pub trait Transport: Send + Sync {
    /// Adds up runs of `len` numbers along a tree over the processes. This one brings `nodes` of them, one behind the
    /// other.
    ///
    /// # Errors
    /// If another process failed or didn't come, or if `bring` fails. So do all operations.
    fn all_reduce(
        &self,
        tree: &SumTree,
        nodes: usize,
        len: usize,
        bring: &mut Bring<'_>,
        take: &mut Take<'_>,
    ) -> Result<()>;

    /// Brings the `len` numbers of process `root` to all. `bring` is called in the others too.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    fn broadcast(&self, len: usize, root: usize, bring: &mut Bring<'_>, take: &mut Take<'_>) -> Result<()>;

    /// Gathers `len` numbers, an equal part of which is each replica's. `bring` writes those of this process to their
    /// places.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    fn all_gather(&self, len: usize, bring: &mut Bring<'_>, take: &mut Take<'_>) -> Result<()>;

    /// Waits for all processes.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    fn barrier(&self) -> Result<()>;

    /// Ends the operation that this process waits in, for the reason of another of its threads.
    fn call_off(&self, reason: &str);
}

/// The way from the replicas of this process to those of the others.
pub struct Across {
    transport: Box<dyn Transport>,
    process: usize,
    /// The first replica of each process; then the number of all replicas.
    firsts: Vec<usize>,
}

impl Across {
    /// From process `process`, of which each has so many replicas.
    pub fn new(transport: impl Transport + 'static, process: usize, replicas: &[usize]) -> Across {
        let mut firsts = vec![0];
        replicas.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        Across { transport: Box::new(transport), process, firsts }
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
        mut bring: impl FnMut(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        self.transport.all_reduce(&tree.grouped(&self.firsts), nodes, len, &mut bring, &mut set(sums))
    }

    /// Sets `sums` to the `len` numbers of the process with the replica `root`, which `bring` writes there.
    pub(crate) fn broadcast(
        &self,
        len: usize,
        root: usize,
        sums: &RwLock<Vec<f32>>,
        mut bring: impl FnMut(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let root = self.firsts.iter().take_while(|first| **first <= root).count() - 1;
        self.transport.broadcast(len, root, &mut bring, &mut set(sums))
    }

    /// Sets `sums` to `len` numbers, an equal part of which is each replica's. `bring` writes those of this
    /// process.
    pub(crate) fn all_gather(
        &self,
        len: usize,
        sums: &RwLock<Vec<f32>>,
        mut bring: impl FnMut(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        self.transport.all_gather(len, &mut bring, &mut set(sums))
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        self.transport.barrier()
    }
}

fn set(sums: &RwLock<Vec<f32>>) -> impl FnMut(&[f32]) {
    |numbers| {
        let mut sums = sums.write().unwrap_or_else(PoisonError::into_inner);
        sums.clear();
        sums.extend_from_slice(numbers);
    }
}

/// A thread of this process that fails ends the wait of the one that waits for the other processes.
impl Abortable for Across {
    fn abort(&self, _: usize, reason: &str) -> bool {
        self.transport.call_off(reason);
        false
    }

    fn leave(&self, _: &str) {}
}
