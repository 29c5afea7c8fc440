mod group;
mod process;

pub use group::NcclGroup;
pub use process::NcclProcess;

use crate::collective::{behind, whole};
use crate::local::abort::Abortable;
use crate::local::barrier::Barrier;
use crate::local::hangs::waiting_outside;
use crate::{Collective, Error, Nodes, Queued, Result, SumTree};
use group::Failures;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towers_program::{Device, Span, Storage};
use towers_rendezvous::Watchdog;
use towers_tensor_cuda::Cuda;
use towers_tensor_cuda::nccl::{Communicator, HostBarrier, Join, UniqueId, unique_id};

/// The collective of GPUs by NVIDIA's NCCL: of threads with a GPU each
/// ([`run_replicas`](crate::run_replicas)), or of processes with one GPU or several ([`NcclProcess`], or
/// [`Members::by_nccl`](crate::Members::by_nccl)), on one machine or many.
///
/// Operations are queued on the device's stream, and the host does not wait for them. Sums are in NCCL's
/// order. They have the same bits on all replicas. Except with NVLS they have the same bits in every run on
/// the same machines (see [`Communicator::all_reduce_sum`]). With another number of replicas the bits differ.
/// Sums of [`Nodes`], and all after [`in_order`](Nccl::in_order), are along a [`SumTree`], with the bits of
/// [`Local`](crate::Local). That takes more memory and more launches.
///
/// Every wait is bounded: a rank that is gone, or silent for longer than the group's patience, is an error on
/// every other. NCCL can't detect different lengths, so they appear as silence.
///
/// Threads of one process share a driver. A call that reserves memory or makes a graph may wait for the
/// kernels of all GPUs, and a kernel of NCCL may wait for that thread. So at first operations are
/// [blocking](Queued::set_blocking). All ranks must capture an operation, or none
/// ([`all_agree`](Queued::all_agree)):
/// <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html>.
pub struct Nccl {
    /// Taken when it is dropped.
    communicator: Option<Communicator>,
    group: Arc<NcclGroup>,
    /// Whether this replica is the one of its process that reports progress.
    reports: bool,
    in_order: bool,
    /// The tree over one part each.
    one_each: SumTree,
    rank: usize,
    world: usize,
}

/// The arguments for joining a group of replicas of several processes.
pub struct NcclJoin {
    /// The id from [`Nccl::draw_id`] on rank 0.
    pub id: Vec<u8>,
    /// The rank of this process's first replica.
    pub rank: usize,
    /// The number of replicas of all processes.
    pub world: usize,
    /// How long a rank may keep the others waiting, to join or within an operation.
    pub patience: Duration,
    /// Knows of the failures of other processes.
    pub watch: Option<Watchdog>,
}

impl Nccl {
    /// Draws the id of a group of processes that this device is to join. Every process with the id can join,
    /// so it must stay private.
    ///
    /// # Errors
    /// If the device is no GPU, or NCCL is missing.
    pub fn draw_id(device: &Device) -> Result<Vec<u8>> {
        Ok(Communicator::draw_id(gpu(device)?)?.as_bytes().to_vec())
    }

    /// Joins a group of processes with these devices, one for each replica of this process, and waits for the
    /// others. Threads of these devices can abort the barrier of the group.
    pub(crate) fn join(devices: &[Device], join: NcclJoin) -> Result<(Vec<Nccl>, Arc<NcclGroup>)> {
        let NcclJoin { id, rank, world, patience, watch } = join;
        let id = id_of(&id)?;
        let failures = Failures { barrier: Arc::new(Barrier::new(devices.len())), watch };
        let begin = |(own, device)| {
            let (id, failures) = (UniqueId::from_bytes(id), failures.clone());
            let failed = Some(Box::new(move || failures.first()) as towers_tensor_cuda::nccl::Failed);
            Communicator::begin(gpu(device)?, Join { id, rank: rank + own, world, patience, failed })
        };
        let joining = devices.iter().enumerate().map(begin).collect::<towers_program::Result<Vec<_>>>()?;
        let joined: towers_program::Result<Vec<_>> =
            joining.into_iter().map(|joining| joining.finish()).collect();
        Ok(Nccl::members(failures, joined?))
    }

    /// The members of a group of threads, by rank, each with one of these devices.
    pub(crate) fn on_threads(devices: &[Device], patience: Duration) -> Result<(Vec<Nccl>, Arc<NcclGroup>)> {
        let (id, world) = (unique_id()?.as_bytes().to_vec(), devices.len());
        Nccl::join(devices, NcclJoin { id, rank: 0, world, patience, watch: None })
    }

    /// The members with these communicators, of one process.
    fn members(failures: Failures, communicators: Vec<Communicator>) -> (Vec<Nccl>, Arc<NcclGroup>) {
        let group = Arc::new(NcclGroup::new(failures));
        let member = |(own, communicator): (usize, Communicator)| {
            let (rank, world) = (communicator.rank(), communicator.world());
            let mut member = Nccl {
                communicator: Some(communicator),
                group: Arc::clone(&group),
                reports: own == 0,
                in_order: false,
                one_each: SumTree::new(&vec![1; world]),
                rank,
                world,
            };
            member.set_blocking(true);
            member
        };
        (communicators.into_iter().enumerate().map(member).collect(), group)
    }

    /// The same with all sums along a tree, or not.
    pub fn in_order(mut self, in_order: bool) -> Nccl {
        self.in_order = in_order;
        self
    }

    /// Calls NCCL. A failure of this replica stops the others. A failure of another replica is returned as
    /// such.
    fn call(
        &mut self,
        data: &mut Storage,
        act: impl FnOnce(&mut Communicator, &mut Storage) -> towers_program::Result<()>,
    ) -> Result<()> {
        self.enter();
        let result = match &mut self.communicator {
            Some(communicator) => waiting_outside(|| act(communicator, data)),
            None => Err(towers_program::Error::DeviceMismatch { op: "collective" }),
        };
        self.telling(result)
    }

    /// The watchdog that this replica reports to.
    fn watch(&self) -> Option<&Watchdog> {
        self.group.failures.watch.as_ref().filter(|_| self.reports)
    }

    /// Tells the watchdogs that this process has come to a collective.
    fn enter(&self) {
        self.watch().into_iter().for_each(Watchdog::enter);
    }

    fn telling<T>(&self, result: towers_program::Result<T>) -> Result<T> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if let Some(reason) = self.group.failures.first() {
            return Err(Error::Aborted { reason });
        }
        if !matches!(error, towers_program::Error::Device { .. }) {
            self.group.at_fault.store(true, Ordering::Relaxed);
        }
        self.abort(&format!("replica {} failed: {error}", self.rank));
        Err(error.into())
    }
}

/// NCCL's id, as rank 0 has handed it out.
fn id_of(bytes: &[u8]) -> Result<[u8; UniqueId::BYTES]> {
    let what = "what rank 0 handed out is no id of it";
    bytes.try_into().map_err(|_| Error::Transport { name: "NCCL", what: what.into() })
}

fn gpu(device: &Device) -> towers_program::Result<&Cuda> {
    device.get().ok_or(towers_program::Error::DeviceMismatch { op: "NCCL" })
}

impl Collective for Nccl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_reduce(
        &mut self,
        _device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        let one_each = self.one_each.clone();
        let one_each = self.in_order.then_some(Nodes { tree: &one_each, earlier: &[] });
        self.call(data, |communicator, data| match nodes.or(one_each) {
            Some(nodes) => communicator.all_reduce_in_order(nodes.into(), data, at),
            None => communicator.all_reduce_sum(data, at),
        })
    }

    /// On the device's second stream, also in captured steps. Sums along a tree need extra memory, so they
    /// wait for the end.
    fn start_all_reduce(
        &mut self,
        _device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        if self.in_order || nodes.is_some() {
            return Ok(());
        }
        self.call(data, |communicator, data| communicator.start_all_reduce(data, at))
    }

    fn finish_all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        buckets: &[Span],
        data: &mut Storage,
    ) -> Result<()> {
        if self.in_order || nodes.is_some() {
            return self.all_reduce(device, nodes, data, whole(buckets));
        }
        self.call(data, |communicator, data| communicator.finish_all_reduce(data, behind(buckets)))
    }

    fn broadcast(&mut self, _device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        self.call(data, |communicator, data| communicator.broadcast(data, at, root))
    }

    fn all_gather(&mut self, _device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        self.call(data, |communicator, data| communicator.all_gather(data, at))
    }

    fn barrier(&mut self) -> Result<()> {
        self.all_agree(true).map(drop)
    }

    fn queued(&mut self) -> Option<&mut dyn Queued> {
        Some(self)
    }

    fn abort(&self, reason: &str) {
        self.group.failures.barrier.abort(self.rank, reason);
        if let Some(communicator) = &self.communicator {
            communicator.abort(reason);
        }
    }
}

impl Queued for Nccl {
    fn all_agree(&mut self, well: bool) -> Result<bool> {
        self.enter();
        let threads = &self.group.failures.barrier;
        let (well, has_others) = (threads.all(well)?, threads.world() < self.world);
        match &mut self.communicator {
            Some(communicator) if has_others => {
                let all = waiting_outside(|| communicator.agree(well));
                self.telling(all)
            }
            _ => Ok(well),
        }
    }

    fn set_blocking(&mut self, blocking: bool) {
        let threads = &self.group.failures.barrier;
        let Some(communicator) = self.communicator.as_mut().filter(|_| threads.world() > 1) else { return };
        communicator.set_blocking(blocking.then(|| {
            let threads = Arc::clone(threads);
            let called_off = |error: Error| towers_program::Error::Device {
                device: "NCCL".into(),
                message: error.to_string(),
            };
            Box::new(move || threads.wait().map_err(called_off)) as HostBarrier
        }));
    }

    fn at_step(&self, step: u64) {
        self.watch().into_iter().for_each(|watch| watch.step(step));
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if let Some(mut communicator) = self.communicator.take() {
            // The other threads may have ended.
            communicator.set_blocking(None);
            self.group.keep(communicator);
        }
    }
}

#[cfg(test)]
mod tests;
