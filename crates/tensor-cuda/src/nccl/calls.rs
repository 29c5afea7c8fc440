//! What a session asks of NCCL and of its stream.

use crate::driver::Ptr;
use core::fmt;
use cudarc::nccl::sys::ncclResult_t;
use program::Result;

/// What the ranks of a group share to find each other: rank 0 draws it and hands it to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl UniqueId {
    /// How long it is.
    pub const BYTES: usize = 128;

    /// The id that was handed over as these bytes.
    pub const fn from_bytes(bytes: [u8; UniqueId::BYTES]) -> UniqueId {
        UniqueId(bytes)
    }

    /// The bytes to hand over.
    pub const fn as_bytes(&self) -> &[u8; UniqueId::BYTES] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    /// Not its bytes: whoever knows them may join.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId")
    }
}

/// A communicator by its address. Only [`Calls`] look behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comm(pub(crate) usize);

/// The numbers of NCCL's answers that mean no failure.
pub(super) const SUCCESS: u32 = ncclResult_t::ncclSuccess as u32;
const IN_PROGRESS: u32 = ncclResult_t::ncclInProgress as u32;

/// What NCCL answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// It goes on in the background.
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
    /// What rank `root` has, in place.
    Broadcast {
        run: Ptr,
        len: usize,
        root: usize,
    },
    /// Of each rank `len` elements, in their order: this rank's are in their place already, at `own`.
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
/// Communicators do not block: a call may answer [`Status::InProgress`], and then [`progress`](Calls::progress) is asked
/// until it answers something else, before the next call.
pub(crate) trait Calls: Send + Sync {
    /// Makes the device the calling thread's current one.
    fn enter(&self) -> Result<()>;

    /// Begins to join a group. The communicator is there unless it failed.
    fn init(&self, id: &UniqueId, world: usize, rank: usize) -> (Status, Comm);

    /// How the last call goes on, or an error that came up since.
    fn progress(&self, comm: Comm) -> Status;

    /// Begins a group of operations of this thread, which start together.
    fn group_start(&self) -> Status;

    /// Starts them.
    fn group_end(&self) -> Status;

    /// Asks for an operation on the stream, or on the second one: `aside`.
    ///
    /// # Safety
    /// Its run lies in a buffer of the device that stays until the stream has come past it.
    unsafe fn ask(&self, comm: Comm, op: Op, aside: bool) -> Status;

    /// Says that there is nothing more to come, and lets all that was asked for end.
    fn finalize(&self, comm: Comm) -> Status;

    /// Gives a communicator back that was finalized.
    fn destroy(&self, comm: Comm) -> Status;

    /// Ends all that a communicator does at once, and gives it back.
    fn abort(&self, comm: Comm) -> Status;

    /// What an answer means: NCCL's words, and those of the communicator's last error.
    fn explain(&self, comm: Option<Comm>, why: u32) -> String;

    /// Puts mark `number` behind all that the stream was asked for.
    fn put_mark(&self, number: usize) -> Result<()>;

    /// Whether the stream has come past it.
    fn has_passed(&self, number: usize) -> Result<bool>;
}

/// How many marks there are: the host may be so many operations ahead of the stream.
pub(crate) const MARKS: usize = 4;
