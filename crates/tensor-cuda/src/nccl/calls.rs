//! A session's interface to NCCL and to its stream.

use crate::driver::Ptr;
use core::fmt;
use cudarc::nccl::sys::ncclResult_t;
use towers_program::Result;

/// The id of a group. Rank 0 draws it and sends it to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl UniqueId {
    /// Its length in bytes.
    pub const BYTES: usize = 128;

    /// The id from its bytes.
    pub const fn from_bytes(bytes: [u8; UniqueId::BYTES]) -> UniqueId {
        UniqueId(bytes)
    }

    /// The bytes to send.
    pub const fn as_bytes(&self) -> &[u8; UniqueId::BYTES] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    /// Not its bytes: every process with them may join.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId")
    }
}

/// A communicator by its address, which only [`Calls`] use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comm(pub(crate) usize);

/// NCCL's statuses that mean no failure.
pub(super) const SUCCESS: u32 = ncclResult_t::ncclSuccess as u32;
const IN_PROGRESS: u32 = ncclResult_t::ncclInProgress as u32;

/// What NCCL answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// It continues in the background.
    InProgress,
    Failed(u32),
}

impl From<u32> for Status {
    fn from(result: u32) -> Status {
        match result {
            SUCCESS => Status::Done,
            IN_PROGRESS => Status::InProgress,
            other => Status::Failed(other),
        }
    }
}

/// An operation on runs of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The sum over all ranks, in NCCL's order, in place.
    AllReduce {
        run: Ptr,
        len: usize,
    },
    /// The run of rank `root`, in place.
    Broadcast {
        run: Ptr,
        len: usize,
        root: usize,
    },
    /// `len` elements of each rank, in their order. This rank's are in place already, at `own`.
    AllGather {
        own: Ptr,
        run: Ptr,
        len: usize,
    },
    Send {
        run: Ptr,
        len: usize,
        to: usize,
    },
    Receive {
        run: Ptr,
        len: usize,
        from: usize,
    },
}

/// NCCL with one device's stream.
///
/// Communicators do not block: a call may return [`Status::InProgress`]. Then [`progress`](Calls::progress)
/// is polled until it returns another status, before the next call.
pub(crate) trait Calls: Send + Sync {
    /// Makes the device the calling thread's current one.
    fn enter(&self) -> Result<()>;

    /// Begins to join a group. The communicator exists unless it failed.
    fn init(&self, id: &UniqueId, world: usize, rank: usize) -> (Status, Comm);

    /// The status of the last call, or a later error.
    fn progress(&self, comm: Comm) -> Status;

    /// Begins a group of operations of this thread, which start together.
    fn group_start(&self) -> Status;

    /// Starts them.
    fn group_end(&self) -> Status;

    /// Queues an operation on the stream, or on the second one: `aside`.
    ///
    /// # Safety
    /// Its run lies in a buffer of the device that stays until the stream has come past it.
    unsafe fn ask(&self, comm: Comm, op: Op, aside: bool) -> Status;

    /// Finalizes a communicator: no more operations will come, and all queued ones end.
    fn finalize(&self, comm: Comm) -> Status;

    /// Destroys a finalized communicator.
    fn destroy(&self, comm: Comm) -> Status;

    /// Aborts a communicator at once, and destroys it.
    fn abort(&self, comm: Comm) -> Status;

    /// The text of a status, with that of the communicator's last error.
    fn explain(&self, comm: Option<Comm>, why: u32) -> String;

    /// Records mark `number` after all work of the stream.
    fn put_mark(&self, number: usize) -> Result<()>;

    /// Whether the stream has reached it.
    fn has_passed(&self, number: usize) -> Result<bool>;
}

/// The number of marks: the host may be this many operations ahead of the stream.
pub(crate) const MARKS: usize = 4;
