use super::abort::{AbortState, Abortable};
use super::hangs::waiting;
use crate::Result;
use crate::system::{Condvar, Mutex, MutexGuard};

/// A barrier for a fixed number of threads that any of them can abort.
pub(crate) struct Barrier {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    /// Whether a waiting thread said no.
    no: bool,
    /// Whether a thread said no in the round before.
    said_no: bool,
    round: u64,
    ended: AbortState,
}

impl Barrier {
    pub(crate) fn new(world: usize) -> Self {
        Barrier { world, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The number of threads.
    pub(crate) fn world(&self) -> usize {
        self.world
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for the others. An error if the barrier was aborted.
    pub(crate) fn wait(&self) -> Result<()> {
        self.all(true).map(drop)
    }

    /// Waits for the others. Returns whether all say yes. An error if the barrier was aborted.
    pub(crate) fn all(&self, yes: bool) -> Result<bool> {
        waiting(|| self.wait_for_all(yes))
    }

    fn wait_for_all(&self, yes: bool) -> Result<bool> {
        let mut state = self.lock();
        state.ended.check()?;
        let round = state.round;
        state.waiting += 1;
        state.no |= !yes;
        if state.waiting == self.world {
            state.waiting = 0;
            state.said_no = core::mem::take(&mut state.no);
            state.round += 1;
            self.changed.notify_all();
            return Ok(!state.said_no);
        }
        while state.round == round {
            state.ended.check()?;
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        // The next round can't end before all threads have left this one.
        Ok(!state.said_no)
    }

    /// The reason of the abort, if a replica failed.
    #[cfg(any(test, feature = "cuda"))]
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().ended.failure().cloned()
    }
}

impl Abortable for Barrier {
    fn abort(&self, rank: usize, reason: &str) -> bool {
        let first = self.lock().ended.abort(rank, reason);
        self.changed.notify_all();
        first
    }

    fn leave(&self, reason: &str) {
        self.lock().ended.leave(reason);
        self.changed.notify_all();
    }
}
