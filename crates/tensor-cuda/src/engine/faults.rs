//! What follows a failed call into a library: another algorithm takes its place, at last our own kernels, except where that would hide
//! a lasting fault or compute something wrong.

use crate::Cuda;
use crate::number::MISSING;
use core::ops::RangeInclusive;
use program::{Error, Result, Write};
use std::sync::atomic::Ordering;

/// What a call that failed tells of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The library said no before it asked the device for anything, so all memory is as it was.
    Refused,
    /// There is too little memory.
    Memory,
    /// Anything else. The device may have begun: what was to be written may be half-written, and the device itself broken.
    Begun,
}

impl Fault {
    /// The kind of a status, of a library whose statuses of the first kinds are these.
    pub(crate) fn of(status: u32, refused: &[RangeInclusive<u32>], memory: &[u32]) -> Fault {
        if memory.contains(&status) {
            Fault::Memory
        } else if status == MISSING || refused.iter().any(|range| range.contains(&status)) {
            Fault::Refused
        } else {
            Fault::Begun
        }
    }
}

impl Cuda {
    /// Calls a library, for one piece of work. What it says of its part of a recording may be that all went well, and the recording
    /// is spoiled all the same, as any other would be: that is a failure of the call too.
    ///
    /// # Errors
    /// What the driver says beside the call.
    pub(crate) fn ask_library(
        &self,
        call: impl FnOnce() -> Result<(), (Fault, String)>,
    ) -> Result<Result<(), (Fault, String)>> {
        let said = self.work(|| Ok(call()))?;
        let spoiled = said.is_ok() && self.is_capturing() && self.driver().is_spoiled()?;
        Ok(if spoiled { Err((Fault::Refused, "it can't be recorded".into())) } else { said })
    }

    /// Notes that an algorithm is dropped because a call of it failed, `what` in words, and whether another may do what it was asked
    /// for.
    ///
    /// # Errors
    /// `what`, and why nothing else is tried:
    /// - While ops are written down, since the recording may be spoiled. Once they ran without this algorithm, they can be written down
    ///   anew.
    /// - Without memory, which a smaller batch mends and another algorithm only hides.
    /// - If the device is broken, as whatever is asked of it from now on will say.
    /// - If the algorithm may have begun to add to something: nobody knows what was there.
    pub(crate) fn drop_algorithm(&self, fault: Fault, write: Write, what: String) -> Result<()> {
        self.inner.dropped.fetch_add(1, Ordering::Relaxed);
        if fault == Fault::Memory || self.is_capturing() {
            return Err(self.error(what));
        }
        if fault == Fault::Refused {
            return Ok(());
        }
        self.driver().synchronize().map_err(|error| match error {
            Error::Device { message, .. } => self.error(format!("{what}: {message}")),
            other => other,
        })?;
        match write {
            Write::Set => Ok(()),
            Write::Add => Err(self.error(format!("{what}; what it was to add to may be half-written"))),
        }
    }

    /// How many algorithms were dropped so far because they failed. Where this grew while ops were written down, they may be written
    /// down another time.
    pub fn dropped_algorithms(&self) -> u64 {
        self.inner.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_nobody_knows_may_have_begun_anything() {
        let of = |status| Fault::of(status, &[1..=3, 5..=5], &[2, 9]);
        let kinds: Vec<_> = [0, 1, 2, 3, 4, 5, 6, 9, MISSING].into_iter().map(of).collect();
        use Fault::{Begun, Memory, Refused};
        assert_eq!(kinds, [Begun, Refused, Memory, Refused, Begun, Refused, Begun, Memory, Refused]);
    }
}
