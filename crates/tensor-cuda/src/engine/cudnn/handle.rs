//! cuDNN's handle, and the errors of its calls.

use crate::driver::Driver;
use crate::engine::faults::Fault;
use crate::engine::owned::Owned;
use crate::number::{self, number};
use core::ffi::{CStr, c_char};
use core::fmt;
use cudarc::cudnn::sys::{self, cudnnStatus_t as Status};
use std::sync::Arc;

/// A call that failed.
#[derive(Debug)]
pub(super) struct Failure {
    call: &'static str,
    status: u32,
    /// cuDNN's details.
    detail: String,
}

impl Failure {
    /// cuDNN's answer for an unsupported request.
    pub(super) fn unsupported(call: &'static str) -> Failure {
        Failure { call, status: Status::CUDNN_STATUS_NOT_SUPPORTED as u32, detail: String::new() }
    }

    /// The kind of failure. Statuses come in thousands: "not initialized", including two that report how
    /// kernels run; "bad parameter"; "not supported". None of those comes from a kernel. Internal and
    /// execution errors may come after one of several kernels was launched.
    pub(super) fn fault(&self) -> Fault {
        const MEMORY: [u32; 2] = [
            Status::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED as u32,
            Status::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED as u32,
        ];
        const RUNS: Status = Status::CUDNN_STATUS_RUNTIME_IN_PROGRESS;
        const OVERFLOWS: u32 = Status::CUDNN_STATUS_RUNTIME_FP_OVERFLOW as u32;
        Fault::of(self.status, &[1000..=RUNS as u32 - 1, OVERFLOWS + 1..=3999], &MEMORY)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the function is one that gives a status' text.
        let text = unsafe { number::words("cudnnGetErrorString", self.status) };
        write!(f, "{}: {} ({})", self.call, text.unwrap_or_default(), self.status)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

pub(super) fn check(call: &'static str, status: u32) -> Result<(), Failure> {
    if status == Status::CUDNN_STATUS_SUCCESS as u32 {
        return Ok(());
    }
    let mut bytes = [0_u8; 512];
    type LastError = unsafe extern "C" fn(*mut c_char, usize);
    // SAFETY: the type is that of the function. The array has the length that is told; the text is cut to it.
    unsafe {
        if let Some(last_error) = number::function::<LastError>("cudnnGetLastErrorString") {
            last_error(bytes.as_mut_ptr().cast(), bytes.len());
        }
    }
    let detail = CStr::from_bytes_until_nul(&bytes).map_or("".into(), |text| text.to_string_lossy());
    Err(Failure { call, status, detail: detail.trim().into() })
}

/// cuDNN at work on one stream.
pub(super) struct Handle {
    raw: Owned<sys::cudnnContext>,
    driver: Arc<dyn Driver>,
}

impl Handle {
    /// A handle of the driver's stream. The driver's device is the thread's current one, and cuDNN is there.
    pub(super) fn new(driver: Arc<dyn Driver>) -> Result<Handle, Failure> {
        // SAFETY: the library was found; these load its parts and compare their versions.
        check("cudnnOpsVersionCheck", unsafe { number!(sys::cudnnOpsVersionCheck()) })?;
        // SAFETY: as above.
        check("cudnnCnnVersionCheck", unsafe { number!(sys::cudnnCnnVersionCheck()) })?;
        // SAFETY: success leaves a handle, and a handle is destroyed by cudnnDestroy.
        let raw = unsafe {
            Owned::new(
                |raw| number!(sys::cudnnDestroy(raw)),
                |place| check("cudnnCreate", number!(sys::cudnnCreate(place))),
            )
        }?;
        // SAFETY: the handle was made just now, the stream lives as long as the driver, which this keeps.
        check("cudnnSetStream", unsafe { number!(sys::cudnnSetStream(raw.raw(), driver.stream().cast())) })?;
        Ok(Handle { raw, driver })
    }

    pub(super) fn raw(&self) -> sys::cudnnHandle_t {
        self.raw.raw()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The handle is destroyed after this, on its device. If that is gone there is nothing to save.
        let _ = self.driver.make_current();
    }
}
