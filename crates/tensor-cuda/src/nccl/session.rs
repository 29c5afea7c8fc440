//! The order in which NCCL is called: joining, operations, errors, the end. Nothing here waits without end.
//!
//! - Every call is followed until NCCL has done it, at most for the session's patience.
//! - On the first error, of NCCL, of another rank or of patience, the communicator is aborted. That ends kernels which wait
//!   for other ranks, so that the stream can be waited for. Afterwards NCCL is never called again.
//! - NCCL gives a communicator back when all recordings of its operations are gone (`commDestroySync` in NCCL's init.cc), in an
//!   abort too. Who aborts may own them, so that happens on a thread of its own.
//! - In the end the stream is waited for before the communicator is finalized and destroyed.

use super::calls::{Calls, Comm, MARKS, Op, Status, UniqueId};
use crate::cuda::lock;
use crate::driver::{Pause, Watch};
use program::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Tells which rank failed, if the caller has a way to know.
pub type Failed = Box<dyn Fn() -> Option<String> + Send>;

/// The longest that others are waited for at the end, when nothing depends on them any more.
const PARTING: Duration = Duration::from_secs(10);

/// The longest that an abort is waited for. It begins with what matters to others, and the rest only tidies up.
const ABORTING: Duration = Duration::from_secs(1);

/// How operations are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On the stream, with a mark behind them.
    Marked,
    /// In a recording: a replay puts no marks.
    Recorded,
    /// On the second stream, in a recording or not. A mark of the first one, behind the place where it waits for the second,
    /// will tell of them too.
    Aside,
}

/// Who joins a group, and how long it waits for the others.
pub struct Join {
    /// The group.
    pub id: UniqueId,
    /// Which of its ranks this is, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// How long other ranks may keep this one waiting, to join or within an operation.
    pub patience: Duration,
    /// Is asked while this rank waits.
    pub failed: Option<Failed>,
}

/// A rank's part in a group.
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
    /// Why there is none any more.
    ended: Option<String>,
    /// Operations asked for, and how many of them the stream has come past, as the marks tell.
    asked: usize,
    passed: usize,
    /// When that number grew, or when the first operation after it was asked for.
    since: Instant,
}

impl Session {
    /// Begins to join. [`joined`](Session::joined) waits for the others.
    pub(crate) fn begin(calls: Arc<dyn Calls>, device: String, join: Join) -> Result<Session> {
        let Join { id, rank, world, patience, failed } = join;
        let state = State { comm: None, ended: None, asked: 0, passed: 0, since: Instant::now() };
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

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended.is_some()
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn world(&self) -> usize {
        self.world
    }

    /// Asks for operations that start together. The host waits for room in the stream alone, where it puts a mark.
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
                // The group is ended whatever came of its operations, or the thread's next calls would be part of it.
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

    /// Ends the session, for the reason that all later calls give. It may be called on any thread, at any time.
    pub(crate) fn abort(&self, reason: &str) {
        self.end(&mut lock(&self.state), reason.to_owned());
    }

    /// Waits for what was asked for, and begins to part from the other ranks. What goes wrong here and in
    /// [`close`](Session::close) ends the session by an abort, and leaves nobody to tell.
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

    /// Parts from the other ranks, which must have begun to, and gives the communicator back.
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

    /// Follows the last call until NCCL has done it.
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

    /// Waits until no more than so many operations are not done.
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

    /// Ends the session if another rank failed, or lets this one wait for too long.
    fn go_on(&self, state: &mut State, call: &'static str, since: Instant, patience: Duration) -> Result<()> {
        let reason = match lock(&self.failed).as_ref().and_then(|failed| failed()) {
            Some(reason) => reason,
            None if since.elapsed() < patience => return Ok(()),
            None => format!(
                "rank {} of {} waited {} s in {call} for the others: a rank is gone, hangs, or never came",
                self.rank,
                self.world,
                patience.as_secs_f64()
            ),
        };
        self.end(state, reason.clone());
        Err(self.error(reason))
    }

    fn unless_failed(&self, state: &mut State, call: &'static str, status: Status) -> Result<()> {
        let Status::Failed(why) = status else { return Ok(()) };
        let known = lock(&self.failed).as_ref().and_then(|failed| failed());
        let why = format!("{call} failed: {}", self.calls.explain(state.comm, why));
        let reason = known.map_or(why.clone(), |known| format!("{known} ({why})"));
        self.end(state, reason.clone());
        Err(self.error(reason))
    }

    /// The first reason stays.
    fn end(&self, state: &mut State, reason: String) {
        state.ended.get_or_insert(reason);
        if let Some(comm) = state.comm.take() {
            let calls = Arc::clone(&self.calls);
            let (ended, aborted) = mpsc::channel();
            let abort = move || {
                // An abort that fails leaves nothing to do.
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
    /// A session that was not closed, as one whose other ranks never came, leaves nothing behind.
    fn drop(&mut self) {
        self.abort("it was given up");
    }
}

impl Watch for Session {
    /// Looks after the host's waits for the stream: for errors of NCCL and of other ranks, and that operations get done.
    fn look(&self) -> Result<()> {
        let mut state = self.open()?;
        let Some(comm) = state.comm else { return Ok(()) };
        let status = self.calls.progress(comm);
        self.unless_failed(&mut state, "a collective", status)?;
        while state.passed < state.asked && self.calls.has_passed(state.passed % MARKS)? {
            state.passed += 1;
            state.since = Instant::now();
        }
        // Without operations under way this device waits for nobody, however long its own work takes.
        let since = if state.passed < state.asked { state.since } else { Instant::now() };
        self.go_on(&mut state, "a collective", since, self.patience)
    }
}
