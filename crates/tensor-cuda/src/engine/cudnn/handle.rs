//! cuDNN's handle, and what its calls say when they fail.

use crate::driver::Driver;
use crate::engine::owned::Owned;
use core::ffi::CStr;
use core::fmt;
use cudarc::cudnn::sys::{self, cudnnStatus_t as Status};
use std::sync::Arc;

/// A call that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    call: &'static str,
    status: Status,
    /// What cuDNN adds to the status.
    detail: String,
}

impl Failure {
    /// That there is no such code, as cuDNN would say it.
    pub(super) fn unsupported(call: &'static str) -> Failure {
        Failure { call, status: Status::CUDNN_STATUS_NOT_SUPPORTED, detail: String::new() }
    }

    /// Whether cuDNN says that it has no code for this, rather than that something went wrong: the statuses from
    /// `CUDNN_STATUS_NOT_SUPPORTED` on, up to the next thousand.
    pub(super) fn is_unsupported(&self) -> bool {
        (self.status as u32) / 1000 == Status::CUDNN_STATUS_NOT_SUPPORTED as u32 / 1000
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any status has a text, static and terminated by a zero.
        let text = unsafe { CStr::from_ptr(sys::cudnnGetErrorString(self.status)) };
        write!(f, "{}: {} ({})", self.call, text.to_string_lossy(), self.status as u32)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

pub(super) fn check(call: &'static str, status: Status) -> Result<(), Failure> {
    if status == Status::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut bytes = [0_u8; 512];
    // SAFETY: the array has the length that is told; the text is cut to it.
    unsafe { sys::cudnnGetLastErrorString(bytes.as_mut_ptr().cast(), bytes.len()) };
    let detail = CStr::from_bytes_until_nul(&bytes).map_or("".into(), |text| text.to_string_lossy());
    Err(Failure { call, status, detail: detail.trim().into() })
}

/// cuDNN at work on one stream.
pub(super) struct Handle {
    raw: Owned<sys::cudnnContext, Status>,
    driver: Arc<dyn Driver>,
}

impl Handle {
    /// A handle of the driver's stream. The driver's device is the thread's current one, and cuDNN is there.
    pub(super) fn new(driver: Arc<dyn Driver>) -> Result<Handle, Failure> {
        // SAFETY: the library was found; these load its parts and compare their versions.
        check("cudnnOpsVersionCheck", unsafe { sys::cudnnOpsVersionCheck() })?;
        // SAFETY: as above.
        check("cudnnCnnVersionCheck", unsafe { sys::cudnnCnnVersionCheck() })?;
        // SAFETY: success leaves a handle, and a handle is destroyed by cudnnDestroy.
        let raw =
            unsafe { Owned::new(sys::cudnnDestroy, |place| check("cudnnCreate", sys::cudnnCreate(place))) }?;
        // SAFETY: the handle was made just now, the stream lives as long as the driver, which this keeps.
        check("cudnnSetStream", unsafe { sys::cudnnSetStream(raw.raw(), driver.stream().cast()) })?;
        Ok(Handle { raw, driver })
    }

    pub(super) fn raw(&self) -> sys::cudnnHandle_t {
        self.raw.raw()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The handle is destroyed after this, on the device that it was made for. If that is gone there is nothing to save.
        let _ = self.driver.make_current();
    }
}
