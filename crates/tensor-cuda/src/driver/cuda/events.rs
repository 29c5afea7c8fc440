//! The driver's events, the time between them, and waits with a check.

use super::CudaDriver;
use crate::driver::{Driver, Event, Watch, watch};
use crate::error::Result;
use crate::gpus::check;
use crate::lock::lock;
use crate::number::number;
use cudarc::driver::sys;
use std::ptr;
use std::sync::Arc;

/// An event without a timestamp, in the thread's current context.
pub(super) fn create() -> Result<sys::CUevent> {
    create_with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
}

fn create_with(flags: sys::CUevent_flags) -> Result<sys::CUevent> {
    let mut raw = ptr::null_mut();
    // SAFETY: a context is current; it writes the event.
    check("cuEventCreate", unsafe { number!(sys::cuEventCreate(&raw mut raw, flags as u32)) })?;
    Ok(raw)
}

/// Destroys an event. The driver keeps it until no stream waits for it.
pub(super) fn destroy(event: sys::CUevent) {
    // SAFETY: `create` made it, and it has no other user. Its error would not help.
    unsafe { number!(sys::cuEventDestroy_v2(event)) };
}

pub(super) fn raw(event: &Event) -> sys::CUevent {
    event.0 as sys::CUevent
}

/// The driver's answer whether an event has passed.
pub(super) fn query(event: sys::CUevent) -> u32 {
    // SAFETY: the events of a driver are there as long as the driver; one that was never recorded has passed.
    unsafe { number!(sys::cuEventQuery(event)) }
}

/// An event with a timestamp.
struct Moment(sys::CUevent);

impl Moment {
    /// In the thread's current context.
    fn new() -> Result<Moment> {
        create_with(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Moment)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        destroy(self.0);
    }
}

impl CudaDriver {
    /// Milliseconds from before to after the work, by the GPU's clock.
    pub(super) fn time_work(&self, work: &mut dyn FnMut() -> program::Result<()>) -> program::Result<f32> {
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
        // SAFETY: both events were recorded and have passed; it writes the time. The first version of this function, without
        // `_v2`, is not among those of CUDA 13; this one is in every driver since 12.8.
        self.call("cuEventElapsedTime", || unsafe {
            number!(sys::cuEventElapsedTime_v2(&raw mut milliseconds, begin.0, end.0))
        })?;
        Ok(milliseconds)
    }

    /// The check of waits, if there is one.
    pub(super) fn watch(&self) -> Option<Arc<dyn Watch>> {
        lock(&self.watch).clone()
    }

    /// Whether an event has passed.
    pub(super) fn passed(&self, name: &'static str, query: impl FnOnce() -> u32) -> program::Result<bool> {
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
    pub(super) fn wait_for_stream(&self) -> program::Result<()> {
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
}
