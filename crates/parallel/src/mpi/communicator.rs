//! MPI's calls as safe functions. All are made by one thread.
#![allow(unsafe_code, reason = "the bindings of MPI")]

use super::abi::{Handle, Status};
use super::library::Library;
use crate::{Error, Result};
use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr::null_mut;
use std::path::Path;

/// All processes of the job, on the thread that started MPI.
///
/// The library prints its own errors and ends the job, as is MPI's default. So its error codes say nothing.
pub(super) struct Communicator {
    library: Library,
    rank: usize,
    world: usize,
    /// The other threads must make no calls.
    one_thread: PhantomData<*const ()>,
}

/// A kind of message. Messages of one kind from one rank to another keep their order.
pub(super) type Tag = c_int;

impl Communicator {
    /// Starts MPI on this thread.
    pub(super) fn start(named: Option<&Path>) -> Result<Communicator> {
        let refuse = |what: &str| Error::Transport { what: what.to_owned() };
        let library = Library::open(named)?;
        let (mpi, abi) = (&library.functions, library.abi);
        let (mut started, mut threads, mut rank, mut world) = (0, 0, 0, 0);
        // SAFETY: this call is allowed at any time.
        unsafe { (mpi.MPI_Initialized)(&raw mut started) };
        if started != 0 {
            return Err(refuse("it was started before"));
        }
        // SAFETY: MPI was not started before, and ignores arguments that are null.
        let failed = unsafe { (mpi.MPI_Init_thread)(null_mut(), null_mut(), abi.funneled, &raw mut threads) };
        if failed != 0 {
            return Err(refuse(&format!("it does not start (error {failed})")));
        }
        if threads < abi.funneled {
            return Err(refuse("this MPI library was built without support for threads"));
        }
        // SAFETY: MPI has started, and the communicator of all processes always exists.
        unsafe {
            (mpi.MPI_Comm_rank)(abi.world, &raw mut rank);
            (mpi.MPI_Comm_size)(abi.world, &raw mut world);
        }
        let (rank, world) = (rank as usize, world as usize);
        Ok(Communicator { library, rank, world, one_thread: PhantomData })
    }

    /// The file of the library.
    pub(super) fn name(&self) -> &str {
        &self.library.name
    }

    /// This process's rank.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub(super) fn world(&self) -> usize {
        self.world
    }

    /// The number of processes on this machine. All processes call it together.
    pub(super) fn world_of_machine(&self) -> usize {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (mut here, mut count) = (0, 1);
        // SAFETY: the new communicator is counted and freed.
        unsafe {
            (mpi.MPI_Comm_split_type)(abi.world, abi.shared, 0, abi.no_info, &raw mut here);
            (mpi.MPI_Comm_size)(here, &raw mut count);
            (mpi.MPI_Comm_free)(&raw mut here);
        }
        count as usize
    }

    /// Gives MPI memory for short messages that are on their way.
    pub(super) fn attach_buffer(&self, bytes: usize) {
        let buffer: &'static mut [u8] = Box::leak(vec![0; bytes].into_boxed_slice());
        // SAFETY: the buffer lives as long as the process, and only MPI uses it.
        unsafe { (self.library.functions.MPI_Buffer_attach)(buffer.as_mut_ptr().cast(), bytes as c_int) };
    }

    /// Sends a short message by way of the attached buffer: it returns at once.
    pub(super) fn send(&self, to: usize, tag: Tag, message: &[u8]) {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (start, len) = (message.as_ptr().cast(), message.len() as c_int);
        // SAFETY: MPI copies the message before it returns.
        unsafe { (mpi.MPI_Bsend)(start, len, abi.byte, to as c_int, tag, abi.world) };
    }

    /// The next short message of this kind, from `from` or from anyone, with its sender; `None` if none has
    /// come.
    pub(super) fn receive(&self, from: Option<usize>, tag: Tag) -> Option<(usize, Vec<u8>)> {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (mut status, mut flag, mut len) = (Status::default(), 0, 0);
        let from = from.map_or(abi.any_source, |rank| rank as c_int);
        // SAFETY: all three pointers are valid.
        unsafe { (mpi.MPI_Iprobe)(from, tag, abi.world, &raw mut flag, &raw mut status) };
        if flag == 0 {
            return None;
        }
        // SAFETY: the probe has filled in the status.
        unsafe { (mpi.MPI_Get_count)(&raw const status, abi.byte, &raw mut len) };
        let (from, mut message) = (abi.source(&status), vec![0_u8; len.max(0) as usize]);
        let start = message.as_mut_ptr().cast();
        // SAFETY: no other thread receives, so this is the message of the probe, and it fits.
        unsafe { (mpi.MPI_Recv)(start, len, abi.byte, from as c_int, tag, abi.world, &raw mut status) };
        Some((from, message))
    }

    /// Lets MPI make progress.
    pub(super) fn poll(&self, tag: Tag) {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (mut status, mut flag) = (Status::default(), 0);
        // SAFETY: all pointers are valid.
        unsafe { (mpi.MPI_Iprobe)(abi.any_source, tag, abi.world, &raw mut flag, &raw mut status) };
    }

    /// Sends and receives runs of numbers, each with its rank. Between two polls, `pause` gets whether any has
    /// arrived, and the ranks that are missing. It must not unwind: MPI may write to the runs until the end.
    pub(super) fn exchange<'a>(
        &self,
        tag: Tag,
        sent: impl IntoIterator<Item = (usize, &'a [f32])>,
        expected: impl IntoIterator<Item = (usize, &'a mut [f32])>,
        mut pause: impl FnMut(bool, &dyn Fn() -> Vec<usize>),
    ) {
        let Library { functions: mpi, abi, .. } = &self.library;
        let guard = EndOnUnwind(self);
        let mut requests: Vec<(usize, Handle)> = Vec::with_capacity(2 * self.world);
        // Sends first. Receiving from another rank of this machine copies at once, while that rank waits for
        // ours.
        for (to, numbers) in sent {
            for piece in numbers.chunks(PIECE) {
                let (start, len, mut request) = (piece.as_ptr().cast(), size_of_val(piece) as c_int, 0);
                let request_at = &raw mut request;
                // SAFETY: the piece is borrowed, and not written to until the loop below has seen the request's end.
                unsafe { (mpi.MPI_Isend)(start, len, abi.byte, to as c_int, tag, abi.world, request_at) };
                requests.push((to, request));
            }
        }
        for (from, numbers) in expected {
            for piece in numbers.chunks_mut(PIECE) {
                let (start, len, mut request) = (piece.as_mut_ptr().cast(), size_of_val(piece) as c_int, 0);
                let request_at = &raw mut request;
                // SAFETY: the piece is borrowed, and not used until the loop below has seen the request's end.
                unsafe { (mpi.MPI_Irecv)(start, len, abi.byte, from as c_int, tag, abi.world, request_at) };
                requests.push((from, request));
            }
        }
        while !requests.is_empty() {
            let before = requests.len();
            requests.retain_mut(|(_, request)| {
                let (mut status, mut done) = (Status::default(), 0);
                // SAFETY: the request has not ended yet.
                unsafe { (mpi.MPI_Test)(&raw mut *request, &raw mut done, &raw mut status) };
                done == 0
            });
            pause(requests.len() < before, &|| {
                let mut missing: Vec<usize> = requests.iter().map(|(peer, _)| *peer).collect();
                missing.sort_unstable();
                missing.dedup();
                missing
            });
        }
        core::mem::forget(guard);
    }

    /// Ends all processes of the job.
    pub(super) fn abort(&self) -> ! {
        // SAFETY: it is allowed at any time while MPI runs.
        unsafe { (self.library.functions.MPI_Abort)(self.library.abi.world, 1) };
        std::process::abort()
    }

    /// Ends MPI, once all processes call it.
    pub(super) fn finish(self) {
        // SAFETY: no request is left, and no call follows.
        unsafe { (self.library.functions.MPI_Finalize)() };
    }
}

/// MPI counts in 32 bits: longer runs of numbers travel in pieces.
const PIECE: usize = 1 << 26;

/// Ends the job if an exchange unwinds, since MPI may still write to its numbers.
struct EndOnUnwind<'a>(&'a Communicator);

impl Drop for EndOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
