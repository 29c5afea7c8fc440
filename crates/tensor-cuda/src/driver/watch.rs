//! Waiting with a check.

use std::time::Duration;
use towers_program::Result;

/// Called repeatedly while the host waits for a stream.
pub(crate) trait Watch: Send + Sync {
    /// An error ends the wait: its event will not come.
    fn look(&self) -> Result<()>;

    /// An error if the watch has aborted work that the stream waited for. Later work then has no valid result.
    fn intact(&self) -> Result<()>;
}

/// Waits until it has passed, or the check fails.
pub(crate) fn wait(mut passed: impl FnMut() -> Result<bool>, watch: &dyn Watch) -> Result<()> {
    let mut pause = Pause::default();
    while !passed()? {
        watch.look()?;
        pause.rest();
    }
    Ok(())
}

/// The pause between two checks: none at first, since most waits are short, and at last a millisecond.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    rests: u32,
}

impl Pause {
    /// Pauses a little longer each time.
    pub(crate) fn rest(&mut self) {
        const BUSY: u32 = 200;
        self.rests = self.rests.saturating_add(1);
        if self.rests <= BUSY {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(u64::from(self.rests - BUSY).min(50) * 20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use towers_program::Error;

    struct Patience(AtomicU32);

    impl Watch for Patience {
        fn look(&self) -> Result<()> {
            match self.0.fetch_sub(1, Ordering::Relaxed) {
                0 => Err(Error::Device { device: "a test".into(), message: "rank 2 is gone".into() }),
                _ => Ok(()),
            }
        }

        fn intact(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_wait_ends_with_the_event_or_with_the_watch() {
        let patience = Patience(AtomicU32::new(10));
        let mut left = 3;
        let mut passed = || {
            left -= 1;
            Ok(left == 0)
        };
        wait(&mut passed, &patience).unwrap();
        assert_eq!(patience.0.load(Ordering::Relaxed), 8, "looked between the questions");
        let never = wait(|| Ok(false), &patience).unwrap_err();
        assert!(never.to_string().contains("rank 2 is gone"), "{never}");
    }

    #[test]
    fn a_question_that_fails_ends_it_too() {
        let broken = || Err(Error::Device { device: "a test".into(), message: "broken".into() });
        assert!(wait(broken, &Patience(AtomicU32::new(9))).is_err());
    }
}
