use std::time::{Duration, Instant};

/// How long a rank that waits only gives way to others: what they take for their part of a step, where all goes well.
const EAGER: Duration = Duration::from_millis(1);

/// How long it sleeps between two looks afterwards. Ranks may share cores: one that looks all the time would keep the one it
/// waits for from computing.
const NAP: Duration = Duration::from_micros(100);

/// The patience of a rank that waits for others.
pub(super) struct Wait {
    timeout: Duration,
    /// When something happened last.
    since: Instant,
}

impl Wait {
    pub(super) fn new(timeout: Duration) -> Self {
        Wait { timeout, since: Instant::now() }
    }

    /// Something happened: the patience begins anew.
    pub(super) fn again(&mut self) {
        self.since = Instant::now();
    }

    /// Leaves the core to others for a moment; false once nothing has happened for too long.
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
