use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop after the current step. Clones share it; a signal handler may raise it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    raised: AtomicBool,
    watched: AtomicBool,
}

impl StopFlag {
    /// Asks the run to stop.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
    }

    /// Whether a run has begun to check the flag. Before that there is nothing to save, and a process may
    /// wait long for another one.
    pub fn is_watched(&self) -> bool {
        self.0.watched.load(Ordering::Relaxed)
    }

    /// Marks that a run checks the flag from now on.
    pub(crate) fn mark_watched(&self) {
        self.0.watched.store(true, Ordering::Relaxed);
    }
}
