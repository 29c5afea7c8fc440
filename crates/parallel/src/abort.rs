use crate::{Error, Result};
use std::sync::Arc;

/// Where threads wait for each other, and can be told that they wait in vain.
pub(crate) trait Abortable: Send + Sync {
    /// Has all who wait here, and all who come, fail with this reason; false if another thread than `number` has done so
    /// before. The first reason stays.
    fn abort(&self, number: usize, reason: &str) -> bool;

    /// Says that one of the threads will not come again. What it has done its part of still succeeds.
    fn leave(&self, reason: &str);
}

/// Why a meeting can't come about any more, if so.
#[derive(Default)]
pub(crate) struct AbortState {
    /// Who called it off, and why.
    aborted: Option<(usize, String)>,
    /// Who has left, though nobody failed.
    left: Option<String>,
}

impl AbortState {
    /// An error if the meeting was called off, or a thread has left.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure().or(self.left.as_ref()) {
            Some(reason) => Err(Error::Aborted { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Why the meeting was called off, if a thread failed.
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

/// What ties a thread to others: what it has to call off when it has ended.
pub(crate) struct Participant {
    /// The thread's number among all, from 0.
    pub(crate) number: usize,
    /// Its replica's number.
    pub(crate) replica: usize,
    /// The thread, in words.
    pub(crate) who: String,
    /// The meetings that it takes part in.
    pub(crate) own: Vec<Arc<dyn Abortable>>,
    /// All meetings. The first is told first by all, so it knows who failed first.
    pub(crate) all: Arc<[Arc<dyn Abortable>]>,
}

impl Participant {
    /// Stops everybody; whether this thread was the first to do so.
    pub(crate) fn abort(&self, how: &str) -> bool {
        let reason = format!("{} {how}", self.who);
        let first = self.all.first().is_some_and(|abortable| abortable.abort(self.number, &reason));
        self.all.iter().skip(1).for_each(|abortable| _ = abortable.abort(self.number, &reason));
        first
    }

    /// Says that this thread is done.
    pub(crate) fn leave(&self) {
        self.own.iter().for_each(|abortable| abortable.leave(&format!("{} has finished", self.who)));
    }
}
