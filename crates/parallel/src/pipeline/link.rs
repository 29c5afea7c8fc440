use crate::local::abort::{AbortState, Abortable};
use crate::local::hangs::waiting;
use crate::system::{Condvar, Mutex, MutexGuard};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue of tensors from one thread to another, through host memory. The memory is reused, so none is
/// allocated in the long run.
#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    sent: VecDeque<Vec<f32>>,
    /// Memory that has been read.
    free: Vec<Vec<f32>>,
    ended: AbortState,
}

impl Link {
    pub(crate) fn new() -> Arc<Link> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends a tensor that `fill` writes. Doesn't wait for the other thread.
    pub(crate) fn send<E: From<Error>>(
        &self,
        fill: impl FnOnce(&mut Vec<f32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut tensor = {
            let mut state = self.lock();
            state.ended.check()?;
            state.free.pop().unwrap_or_default()
        };
        fill(&mut tensor)?;
        self.lock().sent.push_back(tensor);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next tensor, and passes it to `read`.
    pub(crate) fn receive<E: From<Error>>(
        &self,
        read: impl FnOnce(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let tensor = waiting(|| self.next())?;
        read(&tensor)?;
        self.lock().free.push(tensor);
        Ok(())
    }

    fn next(&self) -> Result<Vec<f32>> {
        let mut state = self.lock();
        loop {
            if let Some(tensor) = state.sent.pop_front() {
                return Ok(tensor);
            }
            state.ended.check()?;
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl Abortable for Link {
    fn abort(&self, number: usize, reason: &str) -> bool {
        let first = self.lock().ended.abort(number, reason);
        self.changed.notify_all();
        first
    }

    fn leave(&self, reason: &str) {
        self.lock().ended.leave(reason);
        self.changed.notify_all();
    }
}
