//! MPI's calls as safe functions. All are made by one thread.
#![allow(unsafe_code, reason = "the bindings of MPI")]

use crate::abi::{Handle, Status};
use crate::library::Library;
use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr::null_mut;
use std::path::Path;
use std::time::{Duration, Instant};
use towers_parallel::{Error, Result};

/// All processes of the job that are left, on the thread that started MPI.
///
/// The library prints its own errors and ends the job, as is MPI's default. In a job that may continue after a
/// process was lost ([`is_fault_tolerant`](Communicator::is_fault_tolerant)), a call returns [`Lost`] instead, and so do all later
/// ones until [`shrink`](Communicator::shrink).
pub(crate) struct Communicator {
    library: Library,
    /// MPI's own communicator of all processes, until one is lost.
    comm: Handle,
    rank: usize,
    world: usize,
    /// The other threads must make no calls.
    one_thread: PhantomData<*const ()>,
}

/// A process of the job was lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

/// The meaning of a function's error code.
fn check(code: c_int) -> Result<(), Lost> {
    if code == 0 { Ok(()) } else { Err(Lost) }
}

/// A kind of message. Messages of one kind from one rank to another keep their order.
pub(crate) type Tag = c_int;

impl Communicator {
    /// Starts MPI on this thread.
    pub(crate) fn start(named: Option<&Path>) -> Result<Communicator> {
        let refuse = |what: &str| Error::Transport { name: "MPI", what: what.to_owned() };
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
        let (rank, world, comm) = (rank as usize, world as usize, abi.world);
        let communicator = Communicator { library, comm, rank, world, one_thread: PhantomData };
        communicator.return_errors();
        Ok(communicator)
    }

    /// Whether the other processes may continue after one was lost.
    pub(crate) fn is_fault_tolerant(&self) -> bool {
        self.library.recovery.is_some()
    }

    /// Lets functions return their errors if the job may continue after them.
    fn return_errors(&self) {
        if let Some(recovery) = &self.library.recovery {
            // SAFETY: the communicator and the handler exist.
            unsafe { (recovery.MPI_Comm_set_errhandler)(self.comm, self.library.abi.errors_return) };
        }
    }

    /// Lets the calls of all other processes return [`Lost`].
    pub(crate) fn revoke(&self) {
        if let Some(recovery) = &self.library.recovery {
            // SAFETY: the communicator exists.
            unsafe { (recovery.MPIX_Comm_revoke)(self.comm) };
        }
    }

    /// Continues with the processes that are left, once all of them have called this. They keep their order.
    /// Messages that were under way are dropped.
    pub(crate) fn shrink(&mut self) -> Result<(), Lost> {
        let Library { functions: mpi, recovery, .. } = &self.library;
        let recovery = recovery.as_ref().ok_or(Lost)?;
        let (mut rank, mut world, mut left) = (0, 0, 0);
        // SAFETY: the communicator exists, and the new one is counted.
        let shrunk = unsafe {
            let shrunk = (recovery.MPIX_Comm_shrink)(self.comm, &raw mut left);
            if shrunk == 0 {
                (mpi.MPI_Comm_rank)(left, &raw mut rank);
                (mpi.MPI_Comm_size)(left, &raw mut world);
            }
            shrunk
        };
        check(shrunk)?;
        (self.comm, self.rank, self.world) = (left, rank as usize, world as usize);
        self.return_errors();
        Ok(())
    }

    /// The file of the library.
    pub(crate) fn name(&self) -> &str {
        &self.library.name
    }

    /// This process's rank.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub(crate) fn world(&self) -> usize {
        self.world
    }

    /// The number of processes on this machine. All processes call it together.
    pub(crate) fn world_of_machine(&self) -> usize {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (mut here, mut count) = (0, 1);
        // SAFETY: the new communicator is counted and freed.
        unsafe {
            (mpi.MPI_Comm_split_type)(self.comm, abi.shared, 0, abi.no_info, &raw mut here);
            (mpi.MPI_Comm_size)(here, &raw mut count);
            (mpi.MPI_Comm_free)(&raw mut here);
        }
        count as usize
    }

    /// Gives MPI memory for short messages that are on their way.
    pub(crate) fn attach_buffer(&self, bytes: usize) {
        let buffer: &'static mut [u8] = Box::leak(vec![0; bytes].into_boxed_slice());
        // SAFETY: the buffer lives as long as the process, and only MPI uses it.
        unsafe { (self.library.functions.MPI_Buffer_attach)(buffer.as_mut_ptr().cast(), bytes as c_int) };
    }

    /// Sends a short message by way of the attached buffer: it returns at once.
    pub(crate) fn send(&self, to: usize, tag: Tag, message: &[u8]) -> Result<(), Lost> {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (start, len) = (message.as_ptr().cast(), message.len() as c_int);
        // SAFETY: MPI copies the message before it returns.
        check(unsafe { (mpi.MPI_Bsend)(start, len, abi.byte, to as c_int, tag, self.comm) })
    }

    /// The next short message of this kind, from `from` or from anyone, with its sender; `None` if none has
    /// come.
    pub(crate) fn receive(&self, from: Option<usize>, tag: Tag) -> Result<Option<(usize, Vec<u8>)>, Lost> {
        let Library { functions: mpi, abi, .. } = &self.library;
        let (mut status, mut flag, mut len) = (Status::default(), 0, 0);
        let from = from.map_or(abi.any_source, |rank| rank as c_int);
        // SAFETY: all three pointers are valid.
        check(unsafe { (mpi.MPI_Iprobe)(from, tag, self.comm, &raw mut flag, &raw mut status) })?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the probe has filled in the status.
        unsafe { (mpi.MPI_Get_count)(&raw const status, abi.byte, &raw mut len) };
        let (from, mut message) = (abi.source(&status), vec![0_u8; len.max(0) as usize]);
        let start = message.as_mut_ptr().cast();
        // SAFETY: no other thread receives, so this is the message of the probe, and it fits.
        check(unsafe {
            (mpi.MPI_Recv)(start, len, abi.byte, from as c_int, tag, self.comm, &raw mut status)
        })?;
        Ok(Some((from, message)))
    }

    /// Sends and receives runs of numbers, each with its rank. Between two polls, `pause` gets whether any has
    /// arrived, and the ranks that are missing. It must not unwind: MPI may write to the runs until the end.
    ///
    /// After [`Lost`] MPI doesn't use the runs any more.
    pub(crate) fn exchange<'a>(
        &self,
        tag: Tag,
        sent: impl IntoIterator<Item = (usize, &'a [f32])>,
        expected: impl IntoIterator<Item = (usize, &'a mut [f32])>,
        mut pause: impl FnMut(bool, &dyn Fn() -> Vec<usize>) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        let Library { functions: mpi, abi, .. } = &self.library;
        let guard = EndOnUnwind(self);
        let mut requests: Vec<(usize, Handle)> = Vec::with_capacity(2 * self.world);
        let mut begun = Ok(());
        let mut begin = |peer: usize, begin: &dyn Fn(*mut Handle) -> c_int| {
            let mut request = 0;
            match check(begin(&raw mut request)) {
                Ok(()) => requests.push((peer, request)),
                lost => begun = lost,
            }
        };
        // Sends first. Receiving from another rank of this machine copies at once, while that rank waits for
        // ours.
        for (to, numbers) in sent {
            for piece in numbers.chunks(PIECE) {
                let (start, len) = (piece.as_ptr().cast(), size_of_val(piece) as c_int);
                // SAFETY: the piece is borrowed, and not written to until `complete` has seen the request's end.
                begin(to, &|request| unsafe {
                    (mpi.MPI_Isend)(start, len, abi.byte, to as c_int, tag, self.comm, request)
                });
            }
        }
        for (from, numbers) in expected {
            for piece in numbers.chunks_mut(PIECE) {
                let (start, len) = (piece.as_mut_ptr().cast(), size_of_val(piece) as c_int);
                // SAFETY: the piece is borrowed, and not used until `complete` has seen the request's end.
                begin(from, &|request| unsafe {
                    (mpi.MPI_Irecv)(start, len, abi.byte, from as c_int, tag, self.comm, request)
                });
            }
        }
        let done = begun.and_then(|()| self.complete(&mut requests, &mut pause));
        if done.is_err() {
            self.drain(&mut requests);
        }
        core::mem::forget(guard);
        done
    }

    /// Waits until these requests have ended.
    fn complete(
        &self,
        requests: &mut Vec<(usize, Handle)>,
        pause: &mut impl FnMut(bool, &dyn Fn() -> Vec<usize>) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        while !requests.is_empty() {
            let before = requests.len();
            self.test(requests)?;
            pause(requests.len() < before, &|| {
                let mut missing: Vec<usize> = requests.iter().map(|(peer, _)| *peer).collect();
                missing.sort_unstable();
                missing.dedup();
                missing
            })?;
        }
        Ok(())
    }

    /// Removes the requests that have ended, also by an error.
    fn test(&self, requests: &mut Vec<(usize, Handle)>) -> Result<(), Lost> {
        let mut tested = Ok(());
        requests.retain_mut(|(_, request)| {
            let (mut status, mut done) = (Status::default(), 0);
            // SAFETY: the request has not ended yet.
            let code = unsafe {
                (self.library.functions.MPI_Test)(&raw mut *request, &raw mut done, &raw mut status)
            };
            if code != 0 {
                tested = Err(Lost);
            }
            done == 0 && code == 0
        });
        tested
    }

    /// Ends the requests that are left after a process was lost. If they don't end, MPI may still use the
    /// numbers, and so the job ends.
    fn drain(&self, requests: &mut Vec<(usize, Handle)>) {
        self.revoke();
        let began = Instant::now();
        while !requests.is_empty() {
            // Each ends with an error.
            let _ = self.test(requests);
            if began.elapsed() > DRAIN {
                self.abort();
            }
        }
    }

    /// Ends all processes of the job.
    pub(crate) fn abort(&self) -> ! {
        // SAFETY: it is allowed at any time while MPI runs.
        unsafe { (self.library.functions.MPI_Abort)(self.library.abi.world, 1) };
        std::process::abort()
    }

    /// Ends MPI, once all processes call it.
    ///
    /// After a loss, Open MPI 5.0 waits here for the lost process too, unless [`DOES_NOT_WAIT`] is set. Without
    /// it the process just ends.
    pub(crate) fn finish(&self) {
        let is_whole = self.comm == self.library.abi.world;
        if is_whole || std::env::var_os(DOES_NOT_WAIT).is_some() {
            // SAFETY: no request is left, and no call follows.
            unsafe { (self.library.functions.MPI_Finalize)() };
        }
    }
}

/// The parameter of Open MPI that lets `MPI_Finalize` not wait for other processes.
const DOES_NOT_WAIT: &str = "OMPI_MCA_async_mpi_finalize";

/// How long requests may take to end after a process was lost.
const DRAIN: Duration = Duration::from_secs(10);

/// MPI counts in 32 bits: longer runs of numbers travel in pieces.
const PIECE: usize = 1 << 26;

/// Ends the job if an exchange unwinds, since MPI may still write to its numbers.
struct EndOnUnwind<'a>(&'a Communicator);

impl Drop for EndOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
