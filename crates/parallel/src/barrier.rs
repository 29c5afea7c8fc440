use crate::meeting::Meeting;
use crate::{Error, Result};
use std::sync::{Condvar, Mutex, MutexGuard};

/// A meeting point of a fixed number of threads that any of them can call off.
pub(crate) struct Barrier {
    world: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    round: u64,
    /// Who called the meetings off, and why.
    aborted: Option<(usize, String)>,
    /// Why no meeting can come about any more, though nobody failed.
    left: Option<String>,
}

impl State {
    fn check(&self) -> Result<()> {
        match self.aborted.as_ref().map(|(_, reason)| reason).or(self.left.as_ref()) {
            Some(reason) => Err(Error::Aborted { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

impl Barrier {
    pub(crate) fn new(world: usize) -> Self {
        Barrier { world, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for the others; an error if the meeting was called off.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut state = self.lock();
        state.check()?;
        let round = state.round;
        state.waiting += 1;
        if state.waiting == self.world {
            state.waiting = 0;
            state.round += 1;
            self.changed.notify_all();
            return Ok(());
        }
        while state.round == round {
            state.check()?;
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        Ok(())
    }

    /// Why the meetings were called off, if a replica failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().aborted.as_ref().map(|(_, reason)| reason.clone())
    }
}

impl Meeting for Barrier {
    fn abort(&self, rank: usize, reason: &str) -> bool {
        let mut state = self.lock();
        let (by, _) = state.aborted.get_or_insert_with(|| (rank, reason.to_owned()));
        self.changed.notify_all();
        *by == rank
    }

    fn leave(&self, reason: &str) {
        self.lock().left.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }
}
