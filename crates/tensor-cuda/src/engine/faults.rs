//! The response to a failed call into a library: another algorithm or at last our own kernels take its place,
//! except where that would hide a lasting fault or compute a wrong result.

use crate::Cuda;
use crate::lock::lock;
use crate::number::MISSING;
use core::fmt::Display;
use core::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use towers_program::{Error, Result, Write};

/// The effect of a failed call on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The library refused before it called the device, so all memory is unchanged.
    Refused,
    /// There is too little memory.
    Memory,
    /// Any other failure. The device may have begun: outputs may be half-written, and the device itself
    /// broken.
    Begun,
}

/// A call into a library that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    /// The call, and the library's reason.
    pub(crate) what: String,
}

impl Failure {
    /// A request that no library was asked for.
    pub(crate) fn refused(what: impl Into<String>) -> Failure {
        Failure { fault: Fault::Refused, what: what.into() }
    }
}

impl Fault {
    /// The kind of a status. The library's statuses of the first kinds are these.
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
    /// Calls a library, for one piece of work. A call may report success and still spoil the capture. That is
    /// a failure of the call too.
    ///
    /// # Errors
    /// The driver's own error.
    pub(crate) fn ask_library(
        &self,
        call: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Result<(), Failure>> {
        let said = self.work(|| Ok(call()))?;
        let spoiled = said.is_ok() && self.is_capturing() && self.driver().is_spoiled()?;
        Ok(if spoiled { Err(Failure::refused("it can't be captured")) } else { said })
    }

    /// Notes that an algorithm for `work` is dropped because a call of it failed. Another may take its place.
    ///
    /// # Errors
    /// The failure, if no other may take its place:
    /// - During a capture, which may be spoiled. After a run without this algorithm, the ops can be captured
    ///   anew.
    /// - Without memory: a smaller batch helps, and another algorithm would only hide it.
    /// - If the device is broken, as all later calls will report.
    /// - If the algorithm may have added part of its result: the old values are lost.
    pub(crate) fn drop_algorithm(&self, failure: Failure, write: Write, work: impl Display) -> Result<()> {
        let (fault, what) = (failure.fault, format!("{}, for {work}", failure.what));
        self.inner.dropped.fetch_add(1, Ordering::Relaxed);
        lock(&self.inner.first_dropped).get_or_insert_with(|| what.clone());
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

    /// The number of algorithms dropped so far. If it grew during a capture, another capture may succeed.
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
