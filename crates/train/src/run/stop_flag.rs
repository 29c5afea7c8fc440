use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests to stop after the current step, or to save a checkpoint. Clones share them; a signal handler may
/// make one.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    raised: AtomicBool,
    saves: AtomicBool,
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

    /// Asks the run to save a checkpoint after the current step, and to continue. If several processes train
    /// together, all do so when one is asked.
    pub fn save(&self) {
        self.0.saves.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to save since the last call.
    pub(crate) fn take_save(&self) -> bool {
        self.0.saves.swap(false, Ordering::Relaxed)
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

/// A replica's request to all, for the time after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Continue.
    None,
    /// Save a checkpoint and continue.
    Save,
    /// End the run within the epoch: its time is over.
    End,
    /// Stop.
    Stop,
}

/// The number that stands for a request to end the run: more than all replicas have requests to save.
const END: f32 = 65_536.0;
/// The number that stands for a request to stop: more than all replicas have other requests.
const STOP: f32 = END * END;

impl Request {
    pub(crate) fn stop_if(stop: bool) -> Request {
        if stop { Request::Stop } else { Request::None }
    }

    /// The number to add up over all replicas.
    pub(crate) fn number(self) -> f32 {
        match self {
            Request::None => 0.0,
            Request::Save => 1.0,
            Request::End => END,
            Request::Stop => STOP,
        }
    }

    /// The strongest request in a sum of numbers.
    pub(crate) fn of_sum(sum: f32) -> Request {
        match sum {
            STOP.. => Request::Stop,
            END.. => Request::End,
            sum if sum > 0.0 => Request::Save,
            _ => Request::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_request_counts() {
        let of = |requests: &[Request]| Request::of_sum(requests.iter().map(|r| r.number()).sum());
        assert_eq!(of(&[Request::None; 3]), Request::None);
        assert_eq!(of(&[Request::None, Request::Save, Request::Save]), Request::Save);
        assert_eq!(of(&[Request::Save, Request::Stop, Request::None]), Request::Stop);
        assert_eq!(of(&[Request::Save, Request::End, Request::None]), Request::End);
        assert_eq!(of(&[Request::End, Request::Stop, Request::Save]), Request::Stop);
        assert_eq!(of(&[Request::Save; 65_535]), Request::Save);
        assert_eq!(of(&[Request::End; 65_535]), Request::End);
        assert_eq!(of(&[Request::Stop; 65_535]), Request::Stop);
    }
}
