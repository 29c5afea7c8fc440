//! Waits of the host for the streams, with a check, and of the streams for each other.

use super::CudaDriver;
use crate::driver::{Watch, watch};
use crate::lock::lock;
use crate::number::number;
use cudarc::driver::sys;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use towers_program::Result;

impl CudaDriver {
    /// The check of waits, if there is one.
    pub(super) fn watch(&self) -> Option<Arc<dyn Watch>> {
        lock(&self.watch).clone()
    }

    /// Whether an event has passed.
    pub(super) fn passed(&self, name: &'static str, query: impl FnOnce() -> u32) -> Result<bool> {
        const NOT_READY: u32 = sys::CUresult::CUDA_ERROR_NOT_READY as u32;
        let mut passed = true;
        self.call(name, || match query() {
            NOT_READY => {
                passed = false;
                sys::CUresult::CUDA_SUCCESS as u32
            }
            other => other,
        })?;
        Ok(passed)
    }

    /// Waits for both streams.
    pub(super) fn wait_for_stream(&self) -> Result<()> {
        self.join_side()?;
        let stream = self.stream.raw();
        let Some(looking) = self.watch() else {
            // SAFETY: the stream is there.
            return self.call("cuStreamSynchronize", || unsafe { number!(sys::cuStreamSynchronize(stream)) });
        };
        // SAFETY: the stream is there.
        let query = || self.passed("cuStreamQuery", || unsafe { number!(sys::cuStreamQuery(stream)) });
        watch::wait(query, &*looking)
    }

    pub(super) fn fork_side(&self) -> Result<()> {
        self.outside()?;
        self.hold_back(self.side.raw(), self.side.forked, self.stream.raw())?;
        self.side.open.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn join_side(&self) -> Result<()> {
        if self.side.open.swap(false, Ordering::Relaxed) {
            self.outside()?;
            self.hold_back(self.stream.raw(), self.side.joined, self.side.raw())?;
        }
        Ok(())
    }

    /// Makes `stream` wait for all work of `other` so far.
    fn hold_back(&self, stream: sys::CUstream, event: sys::CUevent, other: sys::CUstream) -> Result<()> {
        // SAFETY: both streams and the event are there.
        self.call("cuEventRecord", || unsafe { number!(sys::cuEventRecord(event, other)) })?;
        // SAFETY: as above.
        self.call("cuStreamWaitEvent", || unsafe { number!(sys::cuStreamWaitEvent(stream, event, 0)) })
    }
}
