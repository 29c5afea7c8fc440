//! The second stream.

use super::context::Stream;
use super::events;
use crate::error::Result;
use cudarc::driver::sys;
use std::sync::atomic::AtomicBool;

/// A stream beside the device's first one.
pub(super) struct Side {
    stream: Stream,
    /// After the other stream's work, and after this one's. Both are recorded anew before each wait, so no
    /// wait is for an event of a finished capture.
    pub(super) forked: sys::CUevent,
    pub(super) joined: sys::CUevent,
    /// Whether it was forked, and not joined since.
    pub(super) open: AtomicBool,
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
