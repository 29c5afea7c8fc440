//! The second stream, and how the two wait for each other.

use super::CudaDriver;
use super::context::Stream;
use super::events;
use crate::error::Result;
use crate::number::number;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicBool, Ordering};

/// A stream beside the device's first one.
pub(super) struct Side {
    stream: Stream,
    /// After the other stream's work, and after this one's. Both are recorded anew before each wait, so no
    /// wait is for an event of a finished capture.
    forked: sys::CUevent,
    joined: sys::CUevent,
    /// Whether it was forked, and not joined since.
    open: AtomicBool,
}

impl Side {
    /// In the thread's current context.
    pub(super) fn new() -> Result<Side> {
        let stream = Stream::new()?;
        let forked = events::create()?;
        let joined = events::create().inspect_err(|_| events::destroy(forked))?;
        Ok(Side { stream, forked, joined, open: AtomicBool::new(false) })
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.stream.raw()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        events::destroy(self.forked);
        events::destroy(self.joined);
    }
}

impl CudaDriver {
    pub(super) fn fork_side(&self) -> program::Result<()> {
        self.outside()?;
        self.hold_back(self.side.raw(), self.side.forked, self.stream.raw())?;
        self.side.open.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn join_side(&self) -> program::Result<()> {
        if self.side.open.swap(false, Ordering::Relaxed) {
            self.outside()?;
            self.hold_back(self.stream.raw(), self.side.joined, self.side.raw())?;
        }
        Ok(())
    }

    /// Makes `stream` wait for all work of `other` so far.
    fn hold_back(
        &self,
        stream: sys::CUstream,
        event: sys::CUevent,
        other: sys::CUstream,
    ) -> program::Result<()> {
        // SAFETY: both streams and the event are there.
        self.call("cuEventRecord", || unsafe { number!(sys::cuEventRecord(event, other)) })?;
        // SAFETY: as above.
        self.call("cuStreamWaitEvent", || unsafe { number!(sys::cuStreamWaitEvent(stream, event, 0)) })
    }
}
