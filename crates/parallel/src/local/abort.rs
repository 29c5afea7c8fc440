use crate::{Error, Result};
use std::sync::Arc;

/// A point where threads wait for each other. A failed thread can abort it for all.
pub(crate) trait Abortable: Send + Sync {
    /// Makes every thread that waits here, now or later, fail with this reason. The first reason stays.
    /// Returns false if another thread than `number` aborted it before.
    fn abort(&self, number: usize, reason: &str) -> bool;

    /// Says that a thread has finished and will not wait here again. Operations that it has completed its
    /// part of still succeed.
    fn leave(&self, reason: &str);
}

/// Whether waiting still makes sense, and why not.
#[derive(Default)]
pub(crate) struct AbortState {
    /// The thread that aborted, and its reason.
    aborted: Option<(usize, String)>,
    /// The thread that finished, when none failed.
    left: Option<String>,
}

impl AbortState {
    /// An error if a thread has aborted or left.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure().or(self.left.as_ref()) {
            Some(reason) => Err(Error::Aborted { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The reason of the abort, if a thread failed.
    pub(crate) fn failure(&self) -> Option<&String> {
        self.aborted.as_ref().map(|(_, reason)| reason)
    }

    /// As [`Abortable::abort`].
    pub(crate) fn abort(&mut self, number: usize, reason: &str) -> bool {
        let (by, _) = self.aborted.get_or_insert_with(|| (number, reason.to_owned()));
        *by == number
    }

    /// As [`Abortable::leave`].
    pub(crate) fn leave(&mut self, reason: &str) {
        self.left.get_or_insert_with(|| reason.to_owned());
    }
}

/// A thread of a group, with everything to abort when it ends.
pub(crate) struct Participant {
    /// The thread's number among all, from 0.
    pub(crate) number: usize,
    /// Its replica's number.
    pub(crate) replica: usize,
    /// The thread's name in messages.
    pub(crate) who: String,
    /// The points where this thread waits.
    pub(crate) own: Vec<Arc<dyn Abortable>>,
    /// The points of all threads. Every failing thread aborts the first one first, so that one knows who
    /// failed first.
    pub(crate) all: Arc<[Arc<dyn Abortable>]>,
}

impl Participant {
    /// Stops all threads. Returns whether this thread was the first to do so.
    pub(crate) fn abort(&self, how: &str) -> bool {
        let reason = format!("{} {how}", self.who);
        let first = self.all.first().is_some_and(|abortable| abortable.abort(self.number, &reason));
        self.all.iter().skip(1).for_each(|abortable| _ = abortable.abort(self.number, &reason));
        first
    }

    /// Says that this thread has finished.
    pub(crate) fn leave(&self) {
        self.own.iter().for_each(|abortable| abortable.leave(&format!("{} has finished", self.who)));
    }
}
