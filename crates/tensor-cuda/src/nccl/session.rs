//! The order of NCCL's calls: joining, operations, errors, the end. Every wait is bounded.
//!
//! - Every call is polled until NCCL has done it, at most for the session's patience.
//! - On the first error, of NCCL, of another rank or of patience, the communicator is aborted. That ends
//!   kernels that wait for other ranks, so that the stream can be waited for. Afterwards NCCL is never called
//!   again.
//! - NCCL frees a communicator when all captured graphs of its operations are gone (`commDestroySync` in
//!   NCCL's init.cc), in an abort too. The aborting thread may own them, so the abort runs on a separate
//!   thread.
//! - At the end the session waits for the stream before the communicator is finalized and destroyed.

use super::calls::{Calls, Comm, MARKS, Op, Status, UniqueId};
use crate::driver::{Pause, Watch};
use crate::lock::lock;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use towers_program::{Error, Result};

/// Returns the failed rank's error, if the caller knows of one.
pub type Failed = Box<dyn Fn() -> Option<String> + Send>;

/// The longest wait for others at the end, when no result depends on them any more.
const PARTING: Duration = Duration::from_secs(10);

/// The longest wait for an abort. Its beginning matters to others, the rest only cleans up.
const ABORTING: Duration = Duration::from_secs(1);

/// Between two looks of the thread that watches a session.
const GLANCE: Duration = Duration::from_millis(200);

/// How operations are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On the stream, with a mark after them.
    Marked,
    /// In a capture: a replay records no marks.
    Captured,
    /// On the second stream, in a capture or not. The next mark of the first stream, which waits for the
    /// second, covers them too.
    Aside,
}

/// The arguments for joining a group.
pub struct Join {
    /// The group.
    pub id: UniqueId,
    /// This rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub world: usize,
    /// How long other ranks may keep this one waiting, to join or within an operation.
    pub patience: Duration,
    /// Polled while this rank waits.
    pub failed: Option<Failed>,
}

/// A rank's membership of a group.
pub(crate) struct Session {
    calls: Arc<dyn Calls>,
    device: String,
    rank: usize,
    world: usize,
    patience: Duration,
    failed: Mutex<Option<Failed>>,
    state: Mutex<State>,
}

struct State {
    comm: Option<Comm>,
    /// Why it has ended.
    ended: Option<String>,
    /// Whether it ended before its operations had.
    aborted: bool,
    /// Whether NCCL or the patience ended it, not a failure that was known.
    failed: bool,
    /// The number of operations, and how many of them the stream has passed by its marks.
    asked: usize,
    passed: usize,
    /// When that number last grew, or the time of the first operation after it.
    since: Instant,
}

impl Session {
    /// Begins to join. [`joined`](Session::joined) waits for the others.
    pub(crate) fn begin(calls: Arc<dyn Calls>, device: String, join: Join) -> Result<Session> {
        let Join { id, rank, world, patience, failed } = join;
        let state = State {
            comm: None,
            ended: None,
            aborted: false,
            failed: false,
            asked: 0,
            passed: 0,
            since: Instant::now(),
        };
        let failed = Mutex::new(failed);
        let session = Session { calls, device, rank, world, patience, failed, state: Mutex::new(state) };
        if rank >= world {
            return Err(session.error(format!("there is no rank {rank} in a group of {world}")));
        }
        session.calls.enter()?;
        let (status, comm) = session.calls.init(&id, world, rank);
        if let Status::Failed(why) = status {
            let why = session.calls.explain(None, why);
            return Err(session.error(format!("ncclCommInitRankConfig failed: {why}")));
        }
        lock(&session.state).comm = Some(comm);
        Ok(session)
    }

    /// Waits until all ranks have joined.
    pub(crate) fn joined(&self) -> Result<()> {
        self.follow("ncclCommInitRankConfig", self.patience)
    }

    /// Starts a thread that looks for failures until the session ends. The thread that uses the session may be
    /// inside of the driver: a full queue has no room before an operation ends that waits for a lost rank.
    pub(crate) fn watch(self: &Arc<Self>) {
        let session = Arc::downgrade(self);
        let look = move || {
            while let Some(session) = session.upgrade() {
                if session.calls.enter().and_then(|()| session.look()).is_err() {
                    return;
                }
                drop(session);
                thread::sleep(GLANCE);
            }
        };
        // Without it, failures are seen by waits alone.
        let _ = thread::Builder::new().name("watch".into()).spawn(look);
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended.is_some()
    }

    /// Whether NCCL or the patience ended it: not an abort, nor a failure that was known by then.
    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.state).failed
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn world(&self) -> usize {
        self.world
    }

    /// Queues operations that start together. The host only waits for a free mark on the stream.
    ///
    /// # Safety
    /// As for [`Calls::ask`].
    pub(crate) unsafe fn run(&self, call: &'static str, ops: &[Op], way: Way) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        if way == Way::Marked {
            self.until_ahead_by(MARKS - 1)?;
        }
        // SAFETY: as the caller says.
        unsafe { self.ask(call, ops, way == Way::Aside) }?;
        self.follow(call, self.patience)?;
        if way != Way::Marked {
            return Ok(());
        }
        let mut state = self.open()?;
        self.calls.put_mark(state.asked % MARKS)?;
        if state.asked == state.passed {
            state.since = Instant::now();
        }
        state.asked += 1;
        Ok(())
    }

    /// # Safety
    /// As for [`Calls::ask`].
    unsafe fn ask(&self, call: &'static str, ops: &[Op], aside: bool) -> Result<()> {
        let mut state = self.open()?;
        let Some(comm) = state.comm else { return Ok(()) };
        self.calls.enter()?;
        // SAFETY: as the caller says.
        let ask = |op: &Op| unsafe { self.calls.ask(comm, *op, aside) };
        let failed = |status: &Status| matches!(status, Status::Failed(_));
        let (call, status) = match ops {
            [op] => (call, ask(op)),
            _ => match self.calls.group_start() {
                status @ Status::Failed(_) => ("ncclGroupStart", status),
                // The group is ended even after a failure, or the thread's next calls would be part of it.
                _ => match (ops.iter().map(ask).find(failed), self.calls.group_end()) {
                    (Some(status), _) => (call, status),
                    (None, status) => ("ncclGroupEnd", status),
                },
            },
        };
        self.unless_failed(&mut state, call, status)
    }

    /// Waits until all operations are done.
    pub(crate) fn wait(&self) -> Result<()> {
        self.until_ahead_by(0)
    }

    /// Ends the session, with the reason for all later calls. It may be called on any thread, at any time.
    pub(crate) fn abort(&self, reason: &str) {
        self.end(&mut lock(&self.state), reason.to_owned(), true);
    }

    /// Waits for all operations, and begins to leave the group. A failure here or in
    /// [`close`](Session::close) aborts the session without an error.
    pub(crate) fn begin_close(&self) {
        let begin = || {
            self.wait()?;
            let mut state = self.open()?;
            let Some(comm) = state.comm else { return Ok(()) };
            self.calls.enter()?;
            let status = self.calls.finalize(comm);
            self.unless_failed(&mut state, "ncclCommFinalize", status)
        };
        let _: Result<()> = begin();
    }

    /// Leaves the group, after the other ranks have begun to, and destroys the communicator.
    pub(crate) fn close(&self) {
        let close = || {
            self.follow("ncclCommFinalize", self.patience.min(PARTING))?;
            let mut state = self.open()?;
            if let Some(comm) = state.comm.take() {
                self.calls.destroy(comm);
            }
            state.ended = Some("its communicator was given back".into());
            Ok(())
        };
        let _: Result<()> = close();
    }

    /// Polls the last call until NCCL has done it.
    fn follow(&self, call: &'static str, patience: Duration) -> Result<()> {
        let (began, mut pause) = (Instant::now(), Pause::default());
        loop {
            let mut state = self.open()?;
            let Some(comm) = state.comm else { return Ok(()) };
            match self.calls.progress(comm) {
                Status::InProgress => self.go_on(&mut state, call, began, patience)?,
                status => return self.unless_failed(&mut state, call, status),
            }
            drop(state);
            pause.rest();
        }
    }

    /// Waits until at most this many operations are unfinished.
    fn until_ahead_by(&self, most: usize) -> Result<()> {
        let mut pause = Pause::default();
        loop {
            self.look()?;
            let state = self.open()?;
            if state.asked - state.passed <= most {
                return Ok(());
            }
            drop(state);
            pause.rest();
        }
    }

    /// Ends the session if another rank failed, or keeps this one waiting for too long.
    fn go_on(&self, state: &mut State, call: &'static str, since: Instant, patience: Duration) -> Result<()> {
        let known = lock(&self.failed).as_ref().and_then(|failed| failed());
        let is_known = known.is_some();
        let reason = match known {
            Some(reason) => reason,
            None if since.elapsed() < patience => return Ok(()),
            None => format!(
                "rank {} of {} waited {} s in {call} for the others: a rank is gone, hangs, or never came",
                self.rank,
                self.world,
                patience.as_secs_f64()
            ),
        };
        self.end(state, reason.clone(), is_known);
        Err(self.error(reason))
    }

    fn unless_failed(&self, state: &mut State, call: &'static str, status: Status) -> Result<()> {
        let Status::Failed(why) = status else { return Ok(()) };
        let known = lock(&self.failed).as_ref().and_then(|failed| failed());
        let is_known = known.is_some();
        let why = format!("{call} failed: {}", self.calls.explain(state.comm, why));
        let reason = known.map_or(why.clone(), |known| format!("{known} ({why})"));
        self.end(state, reason.clone(), is_known);
        Err(self.error(reason))
    }

    /// The first reason stays. It may be that of a failure which was known before.
    fn end(&self, state: &mut State, reason: String, is_known: bool) {
        let is_first = state.ended.is_none();
        state.aborted |= is_first;
        state.failed |= is_first && !is_known;
        state.ended.get_or_insert(reason);
        if let Some(comm) = state.comm.take() {
            let calls = Arc::clone(&self.calls);
            let (ended, aborted) = mpsc::channel();
            let abort = move || {
                // If an abort fails, nothing is left to do.
                let _ = calls.enter();
                calls.abort(comm);
                let _ = ended.send(());
            };
            if thread::Builder::new().name("abort".into()).spawn(abort).is_ok() {
                let _ = aborted.recv_timeout(ABORTING);
            }
        }
    }

    /// The state of a session that has not ended.
    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        match &state.ended {
            Some(reason) => Err(self.error(reason.clone())),
            None => Ok(state),
        }
    }

    fn error(&self, message: String) -> Error {
        Error::Device { device: self.device.clone(), message }
    }
}

impl Drop for Session {
    /// A session that was not closed, for example because other ranks never came, leaves nothing behind.
    fn drop(&mut self) {
        self.abort("it was given up");
    }
}

impl Watch for Session {
    /// Checks the host's waits for the stream: for errors of NCCL and of other ranks, and for progress.
    fn look(&self) -> Result<()> {
        let mut state = self.open()?;
        let Some(comm) = state.comm else { return Ok(()) };
        let status = self.calls.progress(comm);
        self.unless_failed(&mut state, "a collective", status)?;
        while state.passed < state.asked && self.calls.has_passed(state.passed % MARKS)? {
            state.passed += 1;
            state.since = Instant::now();
        }
        // Without unfinished operations this device waits for no rank, however long its own work takes.
        let since = if state.passed < state.asked { state.since } else { Instant::now() };
        self.go_on(&mut state, "a collective", since, self.patience)
    }

    fn intact(&self) -> Result<()> {
        if lock(&self.state).aborted { self.open().map(drop) } else { Ok(()) }
    }
}
