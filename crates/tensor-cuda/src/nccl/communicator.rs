//! A rank's communicator.

use super::calls::{Calls, Op, UniqueId};
use super::installed::{Installed, unique_id};
use super::session::{Join, Session, Way};
use crate::Cuda;
use crate::driver::Pause;
use crate::memory::Scratch;
use std::sync::Arc;
use std::time::{Duration, Instant};
use towers_program::{Error, Result, Span, Storage};

/// The longest wait for a look that is under way, which takes microseconds.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Waits until all ranks that are threads of this process have come.
pub type HostBarrier = Box<dyn Fn() -> Result<()> + Send>;

/// A rank that is joining a group.
pub struct Joining {
    session: Arc<Session>,
    cuda: Cuda,
}

/// A rank of a group, with its own device. All ranks call the same operations in the same order, with runs of
/// the same length.
///
/// Drop captured graphs with its operations before it: NCCL keeps the communicator while there is one.
///
/// Operations are queued on the device's stream and return. Later work of the device comes after them, and
/// errors may come up at a later wait for the device. While there is a communicator, every such wait ends,
/// with an error that names the failed rank if it is known.
pub struct Communicator {
    pub(super) session: Arc<Session>,
    pub(super) cuda: Cuda,
    pub(super) inbox: Scratch,
    pub(super) sums: Scratch,
    barrier: Option<HostBarrier>,
    closing: bool,
}

impl Joining {
    /// Waits until all ranks have come.
    ///
    /// # Errors
    /// The errors of NCCL, and if a rank did not come.
    pub fn finish(self) -> Result<Communicator> {
        let Joining { session, cuda } = self;
        session.joined()?;
        cuda.driver().set_watch(Some(session.clone()));
        session.watch();
        let (inbox, sums) = (Scratch::default(), Scratch::default());
        Ok(Communicator { session, cuda, inbox, sums, barrier: None, closing: false })
    }
}

impl Communicator {
    /// Draws the id of a group that this device is to join.
    ///
    /// # Errors
    /// As [`unique_id`].
    pub fn draw_id(cuda: &Cuda) -> Result<UniqueId> {
        #[cfg(feature = "emulation")]
        if cuda.is_emulated() {
            return super::wire::draw_id(cuda);
        }
        let _ = cuda;
        unique_id()
    }

    /// Joins a group on this device and waits for the other ranks.
    ///
    /// # Errors
    /// If NCCL is missing or too old, its errors, and if a rank did not come.
    pub fn join(cuda: &Cuda, join: Join) -> Result<Communicator> {
        Communicator::begin(cuda, join)?.finish()
    }

    /// Begins to join a group. One thread can do so for several devices, and then wait for them.
    ///
    /// # Errors
    /// As [`join`](Communicator::join).
    pub fn begin(cuda: &Cuda, join: Join) -> Result<Joining> {
        #[cfg(feature = "emulation")]
        if cuda.is_emulated() {
            let wire = super::wire::Wire::between_processes(cuda, &join)?;
            return Communicator::begin_by(Box::new(wire), cuda, join);
        }
        Communicator::begin_by(Box::new(Installed::on(cuda.driver())?), cuda, join)
    }

    pub(super) fn begin_by(calls: Box<dyn Calls>, cuda: &Cuda, join: Join) -> Result<Joining> {
        let session = Arc::new(Session::begin(calls.into(), cuda.name_of(), join)?);
        Ok(Joining { session, cuda: cuda.clone() })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.session.rank()
    }

    /// How many there are.
    pub fn world(&self) -> usize {
        self.session.world()
    }

    /// With a `barrier`, all ranks wait at it before each operation outside of captures, and then for its
    /// end. `None` lets the device run ahead.
    pub fn set_blocking(&mut self, barrier: Option<HostBarrier>) {
        self.barrier = barrier;
    }

    /// Replaces the run `at` of `data` by its sum over all ranks, in NCCL's order. The bits are the same on
    /// all ranks, but depend on the number of ranks. A later run on the same machines has the same bits too,
    /// unless the switch between the GPUs adds up (NVLS, which `NCCL_NVLS_ENABLE=0` disables):
    /// <https://github.com/NVIDIA/nccl/issues/1497>.
    ///
    /// # Errors
    /// The errors of NCCL and the driver, or that another rank failed.
    pub fn all_reduce_sum(&mut self, data: &mut Storage, at: Span) -> Result<()> {
        let run = self.cuda.run("all_reduce_sum", "the run", data.on("collective")?, at)?;
        if at.len > 0 {
            self.run("ncclAllReduce", &[Op::AllReduce { run, len: at.len }])?;
        }
        self.cuda.refresh_compute_copies(data.on("collective")?)
    }

    /// Starts an asynchronous [`all_reduce_sum`](Communicator::all_reduce_sum) of the run `at` of `data`, on
    /// the second stream, after all work so far; with [`one_stream`](crate::Options::one_stream) on the first. The run must not be used before
    /// [`finish_all_reduce`](Communicator::finish_all_reduce).
    ///
    /// It may be captured. Then the two streams are a fork and a join of the graph.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum).
    pub fn start_all_reduce(&mut self, data: &mut Storage, at: Span) -> Result<()> {
        let run = self.cuda.run("start_all_reduce", "the run", data.on("collective")?, at)?;
        if at.len == 0 {
            return Ok(());
        }
        if self.cuda.options().one_stream {
            return self.run("ncclAllReduce", &[Op::AllReduce { run, len: at.len }]);
        }
        self.cuda.fork()?;
        self.ask("ncclAllReduce", &[Op::AllReduce { run, len: at.len }], Way::Aside)
    }

    /// Finishes the started all-reduces, and also replaces the run `rest` of `data` by its sum. All later
    /// work of the device comes after them.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum).
    pub fn finish_all_reduce(&mut self, data: &mut Storage, rest: Span) -> Result<()> {
        self.cuda.join()?;
        self.all_reduce_sum(data, rest)
    }

    /// Replaces the run `at` of `data` by that of rank `root`.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum).
    pub fn broadcast(&mut self, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        self.check_rank("broadcast", root)?;
        let run = self.cuda.run("broadcast", "the run", data.on("collective")?, at)?;
        if at.len > 0 {
            self.run("ncclBroadcast", &[Op::Broadcast { run, len: at.len, root }])?;
        }
        self.cuda.refresh_compute_copies(data.on("collective")?)
    }

    /// Completes the run `at` of `data`, which has an equal part for each rank, in the order of the ranks.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum), and if the run can't be cut into equal parts.
    pub fn all_gather(&mut self, data: &mut Storage, at: Span) -> Result<()> {
        let run = self.cuda.run("all_gather", "the run", data.on("collective")?, at)?;
        if !at.len.is_multiple_of(self.world()) {
            let (what, accepted) = ("the length of the run", "a multiple of the number of ranks");
            return Err(Error::Value { op: "all_gather", what, value: at.len as f64, accepted });
        }
        let len = at.len / self.world();
        if len > 0 {
            let own = run.offset(self.rank() * len * size_of::<f32>());
            self.run("ncclAllGather", &[Op::AllGather { own, run, len }])?;
        }
        self.cuda.refresh_compute_copies(data.on("collective")?)
    }

    /// Waits until all ranks have called this, and all of their earlier work is done.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum).
    pub fn barrier(&mut self) -> Result<()> {
        self.agree(true).map(drop)
    }

    /// Waits as [`barrier`](Communicator::barrier) does. Returns whether all ranks say yes.
    ///
    /// # Errors
    /// As [`all_reduce_sum`](Communicator::all_reduce_sum).
    pub fn agree(&mut self, yes: bool) -> Result<bool> {
        let driver = self.cuda.driver();
        let run = self.sums.at_least(driver, size_of::<f32>())?;
        let mut noes = f32::from(u8::from(!yes)).to_le_bytes();
        // SAFETY: the scratch memory is that large.
        unsafe { driver.write(&noes, run) }?;
        self.run("ncclAllReduce", &[Op::AllReduce { run, len: 1 }])?;
        // SAFETY: as above.
        unsafe { driver.read(run, &mut noes) }?;
        Ok(f32::from_le_bytes(noes) == 0.0)
    }

    /// Ends the group for this rank, with the reason for all later calls. The device's work for the group
    /// ends at once, and the other ranks learn of it as of any failure.
    pub fn abort(&self, reason: &str) {
        self.session.abort(reason);
    }

    /// Whether the group has ended for this rank, by an error or an abort.
    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Whether NCCL or a wait for too long ended the group for this rank: not an abort, nor a failure that [`Join::failed`] knew.
    pub fn has_failed(&self) -> bool {
        self.session.has_failed()
    }

    /// Begins to leave the group, which dropping it ends. Ranks leave together, so one thread with several of
    /// them begins with all of them first. No operation may follow.
    pub fn begin_close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.session.begin_close();
        }
    }

    pub(super) fn run(&self, call: &'static str, ops: &[Op]) -> Result<()> {
        let way = if self.cuda.is_capturing() { Way::Captured } else { Way::Marked };
        self.cuda.driver().leave_work()?;
        self.ask(call, ops, way)
    }

    fn ask(&self, call: &'static str, ops: &[Op], way: Way) -> Result<()> {
        let barrier = self.barrier.as_ref().filter(|_| !self.cuda.is_capturing());
        barrier.map_or(Ok(()), |barrier| barrier())?;
        // SAFETY: the runs lie in buffers that were found as large, and in scratch memory that was made so. Their owners give
        // them back by way of the driver, which waits for the stream, and that for the second one.
        unsafe { self.session.run(call, ops, way) }?;
        barrier.map_or(Ok(()), |_| self.cuda.driver().synchronize())
    }

    fn check_rank(&self, op: &'static str, rank: usize) -> Result<()> {
        if rank < self.world() {
            return Ok(());
        }
        let accepted = "below the number of ranks";
        Err(Error::Value { op, what: "the root", value: rank as f64, accepted })
    }
}

impl Drop for Communicator {
    /// Waits for this rank's operations, and for the other ranks for a moment, but not after a failure.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.abort("this rank panicked");
        }
        self.begin_close();
        self.session.close();
        // While the session may still be aborted, waits are checked.
        self.cuda.driver().set_watch(None);
        // The thread that watches may be at a look. It must not be the last to hold the device.
        let (began, mut pause) = (Instant::now(), Pause::default());
        while Arc::strong_count(&self.session) > 1 && began.elapsed() < LAST_LOOK {
            pause.rest();
        }
    }
}
