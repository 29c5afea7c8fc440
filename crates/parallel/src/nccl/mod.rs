mod process;
mod shared;

pub use process::NcclProcess;

use crate::abort::Abortable;
use crate::barrier::Barrier;
use crate::collective::{behind, whole};
use crate::hangs::{PATIENCE, waiting_outside};
use crate::mpi::Across;
use crate::{Collective, Error, Nodes, Queued, Result, SumTree};
use program::{Device, Span, Storage};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tensor_cuda::Cuda;
use tensor_cuda::nccl::{self, Communicator, Join, UniqueId, unique_id};

/// Returns the failed rank's error, if one is known.
type Failed = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The collective of GPUs by NVIDIA's NCCL: of threads with a GPU each ([`group`](Nccl::group)), or of
/// processes with one GPU or several ([`NcclProcess`]), on one machine or many.
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
    threads: Option<Arc<Threads>>,
    process: Option<Arc<shared::Shared>>,
    /// Whether this replica is the one of its process that reports progress.
    reports: bool,
    /// Whether there are replicas in other processes.
    asks_processes: bool,
    failed: Failed,
    in_order: bool,
    /// The tree over one part each.
    one_each: SumTree,
    rank: usize,
    world: usize,
}

/// State that members on threads of one process share.
struct Threads {
    barrier: Arc<Barrier>,
    /// The communicators of dropped members. They are closed together, after the last one.
    parted: Mutex<Vec<Communicator>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        let parted = self.parted.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.barrier.failure() {
            parted.iter().for_each(|communicator| communicator.abort(&reason));
        }
        parted.iter_mut().for_each(Communicator::begin_close);
    }
}

/// The arguments for joining a group of replicas of several processes.
pub(crate) struct NcclJoin {
    /// The id from [`Nccl::draw_id`] on rank 0.
    pub id: [u8; UniqueId::BYTES],
    /// The rank of this process's first replica.
    pub rank: usize,
    /// The number of replicas of all processes.
    pub world: usize,
    /// How long a rank may keep the others waiting, to join or within an operation.
    pub patience: Duration,
    /// Polled while this rank waits: the failure of another rank, if it is known from elsewhere.
    pub failed: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
}

impl Nccl {
    /// Draws the id of a group of processes that this device is to join. Every process with the id can join,
    /// so it must stay private.
    ///
    /// # Errors
    /// If the device is no GPU, or NCCL is missing.
    pub(crate) fn draw_id(device: &Device) -> Result<[u8; UniqueId::BYTES]> {
        Ok(*Communicator::draw_id(gpu(device)?)?.as_bytes())
    }

    /// Joins a group of processes with these devices, one for each replica of this process, and waits for the
    /// others. Threads of these devices can abort the barrier.
    ///
    /// # Errors
    /// If a device is no GPU, two are the same, NCCL is missing, or a rank did not come.
    pub(crate) fn join(devices: &[Device], join: NcclJoin) -> Result<(Vec<Nccl>, Arc<Barrier>)> {
        let NcclJoin { id, rank, world, patience, failed: elsewhere } = join;
        let barrier = Arc::new(Barrier::new(devices.len()));
        let threads = failure_of(&barrier);
        let failed: Failed =
            Arc::new(move || threads().or_else(|| elsewhere.as_ref().and_then(|elsewhere| elsewhere())));
        let begin = |(own, device)| {
            let (id, asked) = (UniqueId::from_bytes(id), Arc::clone(&failed));
            let failed = Some(Box::new(move || asked()) as nccl::Failed);
            Communicator::begin(gpu(device)?, Join { id, rank: rank + own, world, patience, failed })
        };
        let joining = devices.iter().enumerate().map(begin).collect::<program::Result<Vec<_>>>()?;
        let joined: program::Result<Vec<_>> = joining.into_iter().map(|joining| joining.finish()).collect();
        let of_one = |communicator| Nccl::of(communicator, None, Arc::clone(&failed));
        let members = match devices.len() {
            1 => joined?.into_iter().map(of_one).collect(),
            _ => Nccl::on_threads(&barrier, joined?, &failed),
        };
        Ok((members, barrier))
    }

    /// As [`join`](Nccl::join), with the processes of an MPI job, which broadcasts the id.
    ///
    /// # Errors
    /// As [`join`](Nccl::join), and if a process did not come to the broadcast.
    pub(crate) fn join_over(
        across: &Across,
        devices: &[Device],
        patience: Duration,
    ) -> Result<(Vec<Nccl>, Arc<Barrier>)> {
        let (rank, world) = (across.first(), across.world());
        let mut board = vec![0.0; UniqueId::BYTES];
        if let (0, [device, ..]) = (rank, devices) {
            board = Nccl::draw_id(device)?.map(f32::from).to_vec();
        }
        across.broadcast(&mut board, 0)?;
        let mut id = [0; UniqueId::BYTES];
        id.iter_mut().zip(board).for_each(|(id, byte)| *id = byte as u8);
        Nccl::join(devices, NcclJoin { id, rank, world, patience, failed: None })
    }

    /// The members of a group of threads, by rank, each with one of these devices.
    ///
    /// # Errors
    /// If a device is no GPU, two are the same, or NCCL is missing.
    pub fn group(devices: &[Device]) -> Result<Vec<Nccl>> {
        Ok(Nccl::on_threads_of(devices, PATIENCE)?.0)
    }

    /// As [`group`](Nccl::group), with the barrier, which the runner of the threads can abort.
    pub(crate) fn on_threads_of(devices: &[Device], patience: Duration) -> Result<(Vec<Nccl>, Arc<Barrier>)> {
        let (id, world) = (*unique_id()?.as_bytes(), devices.len());
        Nccl::join(devices, NcclJoin { id, rank: 0, world, patience, failed: None })
    }

    pub(crate) fn on_threads(
        barrier: &Arc<Barrier>,
        communicators: Vec<Communicator>,
        failed: &Failed,
    ) -> Vec<Nccl> {
        let threads = Arc::new(Threads { barrier: Arc::clone(barrier), parted: Mutex::default() });
        let member = |communicator| Nccl::of(communicator, Some(Arc::clone(&threads)), Arc::clone(failed));
        communicators.into_iter().map(member).collect()
    }

    fn of(communicator: Communicator, threads: Option<Arc<Threads>>, failed: Failed) -> Nccl {
        let (rank, world) = (communicator.rank(), communicator.world());
        let communicator = Some(communicator);
        let (process, reports) = (None, false);
        let asks_processes = threads.as_ref().is_none_or(|threads| threads.barrier.world() < world);
        let one_each = SumTree::new(&vec![1; world]);
        let mut member = Nccl {
            communicator,
            threads,
            process,
            reports,
            asks_processes,
            failed,
            in_order: false,
            one_each,
            rank,
            world,
        };
        member.set_blocking(true);
        member
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
        act: impl FnOnce(&mut Communicator, &mut Storage) -> program::Result<()>,
    ) -> Result<()> {
        self.enter();
        let result = match &mut self.communicator {
            Some(communicator) => waiting_outside(|| act(communicator, data)),
            None => Err(program::Error::DeviceMismatch { op: "collective" }),
        };
        self.telling(result)
    }

    /// Tells the watchdogs that this process has come to a collective.
    fn enter(&self) {
        if let Some(process) = self.process.as_ref().filter(|_| self.reports) {
            (process.enter)();
        }
    }

    fn telling<T>(&self, result: program::Result<T>) -> Result<T> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if let Some(reason) = (self.failed)() {
            return Err(Error::Aborted { reason });
        }
        if let (Some(process), false) = (&self.process, matches!(error, program::Error::Device { .. })) {
            process.at_fault.store(true, Ordering::Relaxed);
        }
        self.abort(&format!("replica {} failed: {error}", self.rank));
        Err(error.into())
    }
}

/// The failure of a thread at this barrier.
fn failure_of(barrier: &Arc<Barrier>) -> Failed {
    let barrier = Arc::clone(barrier);
    Arc::new(move || barrier.failure())
}

fn gpu(device: &Device) -> program::Result<&Cuda> {
    device.get().ok_or(program::Error::DeviceMismatch { op: "NCCL" })
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
        if let Some(threads) = &self.threads {
            threads.barrier.abort(self.rank, reason);
        }
        if let Some(communicator) = &self.communicator {
            communicator.abort(reason);
        }
    }
}

impl Queued for Nccl {
    fn all_agree(&mut self, well: bool) -> Result<bool> {
        self.enter();
        let well = match &self.threads {
            Some(threads) => threads.barrier.all(well)?,
            None => well,
        };
        match &mut self.communicator {
            // The threads of this process are not all replicas.
            Some(communicator) if self.asks_processes => {
                let all = waiting_outside(|| communicator.agree(well));
                self.telling(all)
            }
            _ => Ok(well),
        }
    }

    fn set_blocking(&mut self, set_blocking: bool) {
        let (Some(threads), Some(communicator)) = (&self.threads, &mut self.communicator) else { return };
        communicator.set_blocking(set_blocking.then(|| {
            let barrier = Arc::clone(&threads.barrier);
            let called_off =
                |error: Error| program::Error::Device { device: "NCCL".into(), message: error.to_string() };
            Box::new(move || barrier.wait().map_err(called_off)) as nccl::HostBarrier
        }));
    }

    fn at_step(&self, step: u64) {
        if let Some(process) = self.process.as_ref().filter(|_| self.reports) {
            (process.at_step)(step);
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let mut communicator = self.communicator.take();
        // The other threads may have ended.
        communicator.iter_mut().for_each(|communicator| communicator.set_blocking(None));
        if let Some(process) = &self.process {
            process.parted.lock().unwrap_or_else(PoisonError::into_inner).extend(communicator);
        } else if let Some(threads) = &self.threads {
            threads.parted.lock().unwrap_or_else(PoisonError::into_inner).extend(communicator);
        }
    }
}

#[cfg(test)]
mod tests;
