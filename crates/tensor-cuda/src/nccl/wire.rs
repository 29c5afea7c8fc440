//! NCCL's part for emulated GPUs: ranks that are threads of this process, or processes of this machine, for
//! tests without a GPU.
//!
//! Like NCCL, it takes calls and does them in the background: [`Calls::progress`] completes them when the
//! others' numbers have come. In a capture they become nodes of the graph, whose replays wait for the others. Its own sums go from the last rank to the first, so tests detect code that
//! relies on their order.

use super::calls::{Calls, Comm, Op, Status, UniqueId};
use super::session::Join;
use super::transport::{FolderTransport, Transport};
use crate::Cuda;
use crate::driver::{Driver, HostWork, Pause, Ptr};
use crate::lock::lock;
use cudarc::nccl::sys::ncclResult_t;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use towers_program::{Error, Result};

/// Draws the id of a group of processes with emulated devices.
///
/// # Errors
/// If no folder can be made for their transport.
pub(super) fn draw_id(cuda: &Cuda) -> Result<UniqueId> {
    FolderTransport::draw().map_err(|why| cuda.error(why))
}

/// A rank's end.
#[derive(Clone)]
pub(super) struct Wire {
    transport: Arc<dyn Transport>,
    rank: usize,
    world: usize,
    driver: Arc<dyn Driver>,
    /// Operations that still wait for others.
    pending: Arc<Mutex<VecDeque<Op>>>,
}

impl Wire {
    /// The end of a rank on an emulated device.
    pub(super) fn new(transport: Arc<dyn Transport>, cuda: &Cuda, join: &Join) -> Wire {
        let (rank, world, driver) = (join.rank, join.world, Arc::clone(cuda.driver()));
        Wire { transport, rank, world, driver, pending: Arc::default() }
    }

    /// That of a rank in a group of processes.
    ///
    /// # Errors
    /// If the id does not come from [`draw_id`].
    pub(super) fn between_processes(cuda: &Cuda, join: &Join) -> Result<Wire> {
        let transport = FolderTransport::of(&join.id).map_err(|why| cuda.error(why))?;
        Ok(Wire::new(Arc::new(transport), cuda, join))
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank;
        (0..self.world).filter(move |other| *other != rank)
    }

    fn read(&self, run: Ptr, len: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; len * size_of::<f32>()];
        // SAFETY: as `Calls::ask` was promised.
        unsafe { self.driver.read(run, &mut bytes) }?;
        let (numbers, _) = bytes.as_chunks::<4>();
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn write(&self, run: Ptr, numbers: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        // SAFETY: as `Calls::ask` was promised.
        unsafe { self.driver.write(&bytes, run) }
    }

    /// Sends the numbers of an operation.
    fn post(&self, op: Op) -> Result<()> {
        let (run, len, to): (Ptr, usize, Vec<usize>) = match op {
            Op::AllReduce { run, len } => (run, len, self.others().collect()),
            Op::Broadcast { run, len, root } if root == self.rank => (run, len, self.others().collect()),
            Op::AllGather { own, len, .. } => (own, len, self.others().collect()),
            Op::Send { run, len, to } => (run, len, vec![to]),
            Op::Broadcast { .. } | Op::Receive { .. } => return Ok(()),
        };
        let numbers = self.read(run, len)?;
        to.into_iter().for_each(|to| self.transport.send(self.rank, to, &numbers));
        Ok(())
    }

    /// Takes the others' numbers, if all of them are there.
    fn take(&self, from: &[usize]) -> Option<Vec<Vec<f32>>> {
        let here = from.iter().all(|from| self.transport.waits(*from, self.rank));
        here.then(|| from.iter().filter_map(|from| self.transport.take(*from, self.rank)).collect())
    }

    /// Ends an operation. `false` if it must wait.
    fn end(&self, op: Op) -> Result<bool, u32> {
        let from: Vec<usize> = match op {
            Op::Send { .. } => Vec::new(),
            Op::Receive { from, .. } => vec![from],
            Op::Broadcast { root, .. } if root == self.rank => Vec::new(),
            Op::Broadcast { root, .. } => vec![root],
            Op::AllReduce { .. } | Op::AllGather { .. } => self.others().collect(),
        };
        let Some(mut came) = self.take(&from) else { return Ok(false) };
        let refused = |_| ncclResult_t::ncclUnhandledCudaError as u32;
        match op {
            Op::AllReduce { run, len } => {
                came.insert(self.rank, self.read(run, len).map_err(refused)?);
                let mut sums = came.pop().unwrap_or_default();
                for part in came.iter().rev() {
                    sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
                }
                self.write(run, &sums).map_err(refused)?;
            }
            Op::AllGather { run, len, .. } => {
                if came.iter().any(|numbers| numbers.len() != len) {
                    return Err(ncclResult_t::ncclInvalidUsage as u32);
                }
                for (other, numbers) in from.into_iter().zip(&came) {
                    let place = run.offset(other * len * size_of::<f32>());
                    self.write(place, numbers).map_err(refused)?;
                }
            }
            Op::Receive { run, len, .. } | Op::Broadcast { run, len, .. } => {
                if came.iter().any(|numbers| numbers.len() != len) {
                    return Err(ncclResult_t::ncclInvalidUsage as u32);
                }
                came.iter().try_for_each(|numbers| self.write(run, numbers)).map_err(refused)?;
            }
            Op::Send { .. } => {}
        }
        Ok(true)
    }

    /// Does an operation and waits for the others, until one of them aborts or this rank does.
    fn replay(&self, op: Op) -> Result<()> {
        let failed = |why| Error::Device { device: self.driver.name(), message: self.explain(None, why) };
        let mut pause = Pause::default();
        self.post(op)?;
        while !self.end(op).map_err(failed)? {
            if self.transport.gone().is_some() {
                return Err(failed(ncclResult_t::ncclRemoteError as u32));
            }
            pause.rest();
        }
        Ok(())
    }
}

impl Calls for Wire {
    fn enter(&self) -> Result<()> {
        self.driver.make_current()
    }

    fn init(&self, _id: &UniqueId, _world: usize, rank: usize) -> (Status, Comm) {
        self.transport.join(rank);
        (Status::InProgress, Comm(rank + 1))
    }

    fn progress(&self, _comm: Comm) -> Status {
        if self.transport.gone().is_some_and(|gone| gone != self.rank) {
            return Status::Failed(ncclResult_t::ncclRemoteError as u32);
        }
        if self.transport.joined() < self.world {
            return Status::InProgress;
        }
        let mut pending = lock(&self.pending);
        while let Some(op) = pending.front() {
            match self.end(*op) {
                Ok(true) => pending.pop_front(),
                Ok(false) => return Status::InProgress,
                Err(why) => return Status::Failed(why),
            };
        }
        Status::Done
    }

    fn group_start(&self) -> Status {
        Status::Done
    }

    fn group_end(&self) -> Status {
        Status::InProgress
    }

    unsafe fn ask(&self, _comm: Comm, op: Op, _aside: bool) -> Status {
        let wire = self.clone();
        if self.driver.capture_host_work(HostWork(Arc::new(move || wire.replay(op)))) {
            return Status::Done;
        }
        if self.post(op).is_err() {
            return Status::Failed(ncclResult_t::ncclUnhandledCudaError as u32);
        }
        lock(&self.pending).push_back(op);
        Status::InProgress
    }

    fn finalize(&self, _comm: Comm) -> Status {
        Status::Done
    }

    fn destroy(&self, _comm: Comm) -> Status {
        Status::Done
    }

    fn abort(&self, _comm: Comm) -> Status {
        self.transport.leave(self.rank);
        Status::Done
    }

    fn explain(&self, _comm: Option<Comm>, why: u32) -> String {
        match self.transport.gone() {
            Some(gone) if why == ncclResult_t::ncclRemoteError as u32 => format!("rank {gone} has left"),
            _ => format!("error {why}"),
        }
    }

    fn put_mark(&self, _number: usize) -> Result<()> {
        Ok(())
    }

    fn has_passed(&self, _number: usize) -> Result<bool> {
        Ok(true)
    }
}
