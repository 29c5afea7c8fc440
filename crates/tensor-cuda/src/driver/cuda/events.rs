//! The driver's events.

use crate::driver::Event;
use crate::error::Result;
use crate::gpus::check;
use cudarc::driver::sys;
use std::ptr;

/// An event that takes no time, in the thread's current context.
pub(super) fn create() -> Result<sys::CUevent> {
    let mut raw = ptr::null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: a context is current; it writes the event.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) })?;
    Ok(raw)
}

pub(super) fn raw(event: &Event) -> sys::CUevent {
    event.0 as sys::CUevent
}

/// The driver's answer whether an event has passed.
pub(super) fn query(event: sys::CUevent) -> sys::CUresult {
    // SAFETY: the events of a driver are there as long as the driver; one that was never recorded has passed.
    unsafe { sys::cuEventQuery(event) }
}
