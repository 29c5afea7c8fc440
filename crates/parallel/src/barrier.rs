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
    aborted: Option<String>,
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
        if let Some(reason) = &state.aborted {
            return Err(Error::Aborted { reason: reason.clone() });
        }
        let round = state.round;
        state.waiting += 1;
        if state.waiting == self.world {
            state.waiting = 0;
            state.round += 1;
            self.changed.notify_all();
            return Ok(());
        }
        while state.round == round {
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted { reason: reason.clone() });
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        Ok(())
    }

    /// Calls this and all later meetings off; false if that had been done already. The first reason stays.
    pub(crate) fn abort(&self, reason: &str) -> bool {
        let mut state = self.lock();
        let first = state.aborted.is_none();
        state.aborted.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
        first
    }
}
