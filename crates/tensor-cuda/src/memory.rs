//! Device memory with an owner.

use crate::driver::{Driver, Ptr};
use std::sync::Arc;
use tensor_backend::Result;

/// A run of bytes on the device, given back when dropped.
pub(crate) struct Memory {
    driver: Arc<dyn Driver>,
    ptr: Ptr,
    bytes: usize,
}

impl Memory {
    /// Zeros.
    pub(crate) fn zeros(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Memory> {
        Ok(Memory { driver: Arc::clone(driver), ptr: driver.alloc(bytes)?, bytes })
    }

    pub(crate) fn ptr(&self) -> Ptr {
        self.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory came from `zeros`. Recordings hold no memory of their own: who replays one keeps what its ops
        // worked on, as `Recording` says.
        unsafe { self.driver.free(self.ptr, self.bytes) }
    }
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.ptr.0)
    }
}
