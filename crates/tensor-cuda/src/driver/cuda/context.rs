//! A GPU's context and a stream in it.

use crate::error::Result;
use crate::gpus::{Device, check};
use crate::number::number;
use cudarc::driver::sys;
use std::ptr;

/// The GPU's primary context, which this process shares with libraries that use the CUDA runtime.
pub(super) struct Context {
    device: Device,
    raw: sys::CUcontext,
}

impl Context {
    /// Retains it and makes it the thread's current one.
    pub(super) fn of(device: Device) -> Result<Context> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver is ready, or there were no device; it writes the context.
        let status = unsafe { number!(sys::cuDevicePrimaryCtxRetain(&raw mut raw, device.handle)) };
        check("cuDevicePrimaryCtxRetain", status)?;
        let context = Context { device, raw };
        context.make_current()?;
        Ok(context)
    }

    pub(super) fn raw(&self) -> sys::CUcontext {
        self.raw
    }

    /// Makes it the thread's current one.
    pub(super) fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained.
        check("cuCtxSetCurrent", unsafe { number!(sys::cuCtxSetCurrent(self.raw)) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and what belonged to it is gone. No thread is left with a context that may be gone.
        unsafe {
            number!(sys::cuCtxSetCurrent(ptr::null_mut()));
            number!(sys::cuDevicePrimaryCtxRelease_v2(self.device.handle));
        }
    }
}

/// A stream that waits for no other.
pub(super) struct Stream(sys::CUstream);

impl Stream {
    /// In the thread's current context.
    pub(super) fn new() -> Result<Stream> {
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current; it writes the stream.
        check("cuStreamCreate", unsafe { number!(sys::cuStreamCreate(&raw mut raw, flags)) })?;
        Ok(Stream(raw))
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was created, its context is current, and it is not used any more.
        unsafe { number!(sys::cuStreamDestroy_v2(self.0)) };
    }
}
