use std::time::{Duration, Instant};

/// How long a waiting rank only yields: about the time in which others finish their part of a step.
const EAGER: Duration = Duration::from_millis(1);

/// How long it sleeps between two polls afterwards. Ranks may share cores, and polling would slow down the
/// rank that computes.
const NAP: Duration = Duration::from_micros(100);

/// The patience of a rank that waits for others.
pub(super) struct Wait {
    timeout: Duration,
    /// When a message last arrived.
    since: Instant,
}

impl Wait {
    pub(super) fn new(timeout: Duration) -> Self {
        Wait { timeout, since: Instant::now() }
    }

    /// A message arrived: the patience begins anew.
    pub(super) fn again(&mut self) {
        self.since = Instant::now();
    }

    /// Yields the core for a moment. False after too long without a message.
    pub(super) fn moment(&self) -> bool {
        let waited = self.since.elapsed();
        if waited < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
        waited < self.timeout
    }
}
