//! Waits of the host for the streams, with a check, and of the streams for each other.

use super::CudaDriver;
use super::events::Moment;
use crate::driver::{Driver, Watch, watch};
use crate::lock::lock;
use crate::number::{self, MISSING, number};
use cudarc::driver::sys;
use program::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The second version of this function came with CUDA 12.8. Headers of CUDA 13 have lost the first one.
///
/// # Safety
/// Both events are there, and the time may be written.
unsafe fn elapsed(milliseconds: *mut f32, begin: sys::CUevent, end: sys::CUevent) -> u32 {
    type First = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> u32;
    // SAFETY: as the caller says; both versions have the same type.
    unsafe {
        match number!(sys::cuEventElapsedTime_v2(milliseconds, begin, end)) {
            MISSING => number::function::<First>("cuEventElapsedTime")
                .map_or(MISSING, |first| first(milliseconds, begin, end)),
            status => status,
        }
    }
}

impl CudaDriver {
    /// Milliseconds from before to after the work, by the GPU's clock.
    pub(super) fn time_work(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        self.unless_capturing("taking the time")?;
        self.make_current()?;
        let moment = || Moment::new().map_err(|error| error.of_device(&self.title));
        let (begin, end) = (moment()?, moment()?);
        let pass = |moment: &Moment| {
            // SAFETY: the event and the stream are there.
            self.call("cuEventRecord", || unsafe { number!(sys::cuEventRecord(moment.0, self.stream.raw())) })
        };
        pass(&begin)?;
        work()?;
        pass(&end)?;
        self.synchronize()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded and have passed; it writes the time.
        self.call("cuEventElapsedTime", || unsafe { elapsed(&raw mut milliseconds, begin.0, end.0) })?;
        Ok(milliseconds)
    }

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
