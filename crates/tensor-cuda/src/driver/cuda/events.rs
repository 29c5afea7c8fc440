//! The driver's events.

use crate::driver::Event;
use crate::error::Result;
use crate::gpus::check;
use crate::number::number;
use cudarc::driver::sys;
use std::ptr;

/// An event without a timestamp, in the thread's current context.
pub(super) fn create() -> Result<sys::CUevent> {
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
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
