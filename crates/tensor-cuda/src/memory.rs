//! Device memory with an owner.

use crate::cuda::lock;
use crate::driver::{Driver, Ptr};
use std::sync::{Arc, Mutex};
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

/// Scratch memory that grows: what is in use is the last; those before it stay for recordings that were made with them.
#[derive(Default)]
pub(crate) struct Scratch(Mutex<Vec<Memory>>);

impl Scratch {
    pub(crate) fn at_least(&self, driver: &Arc<dyn Driver>, bytes: usize) -> Result<Ptr> {
        let mut all = lock(&self.0);
        if let Some(last) = all.last().filter(|last| last.bytes() >= bytes) {
            return Ok(last.ptr());
        }
        let memory = Memory::zeros(driver, bytes.next_power_of_two().max(1 << 16))?;
        let ptr = memory.ptr();
        all.push(memory);
        Ok(ptr)
    }
}
