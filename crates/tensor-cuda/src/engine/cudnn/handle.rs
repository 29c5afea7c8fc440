//! cuDNN's handle, and the errors of its calls.

use crate::driver::Driver;
use crate::engine::faults::{Failure, Fault};
use crate::engine::owned::{self, owned};
use crate::number::{self, number};
use core::ffi::{CStr, c_char};
use cudarc::cudnn::sys::{self, cudnnStatus_t as Status};
use std::sync::Arc;

/// The kind of a failure. Statuses come in thousands: "not initialized", including two that report how
/// kernels run; "bad parameter"; "not supported". None of those comes from a kernel. Internal and
/// execution errors may come after one of several kernels was launched.
fn fault(status: u32) -> Fault {
    const MEMORY: [u32; 2] = [
        Status::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED as u32,
        Status::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED as u32,
    ];
    const RUNS: Status = Status::CUDNN_STATUS_RUNTIME_IN_PROGRESS;
    const OVERFLOWS: u32 = Status::CUDNN_STATUS_RUNTIME_FP_OVERFLOW as u32;
    Fault::of(status, &[1000..=RUNS as u32 - 1, OVERFLOWS + 1..=3999], &MEMORY)
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
    // SAFETY: the function is one that gives a status' text.
    let text = unsafe { number::words("cudnnGetErrorString", status) };
    let mut what = format!("{call}: {} ({status})", text.unwrap_or_default());
    if let Ok(detail @ [_, ..]) = CStr::from_bytes_until_nul(&bytes).map(CStr::to_bytes) {
        what += &format!(": {}", String::from_utf8_lossy(detail).trim());
    }
    Err(Failure { fault: fault(status), what })
}

/// cuDNN at work on one stream.
pub(super) type Handle = owned::Handle<sys::cudnnContext>;

/// A handle of the driver's stream. The driver's device is the thread's current one, and cuDNN is there.
pub(super) fn handle(driver: Arc<dyn Driver>) -> Result<Handle, Failure> {
    // SAFETY: the library was found; these load its parts and compare their versions.
    check("cudnnOpsVersionCheck", unsafe { number!(sys::cudnnOpsVersionCheck()) })?;
    // SAFETY: as above.
    check("cudnnCnnVersionCheck", unsafe { number!(sys::cudnnCnnVersionCheck()) })?;
    // SAFETY: success leaves a handle, and a handle is destroyed by cudnnDestroy.
    let raw = unsafe { owned!(check, sys::cudnnCreate(), sys::cudnnDestroy()) }?;
    // SAFETY: the handle was made just now, the stream lives as long as the driver, which this keeps.
    check("cudnnSetStream", unsafe { number!(sys::cudnnSetStream(raw.raw(), driver.stream().cast())) })?;
    Ok(Handle { raw, driver })
}
