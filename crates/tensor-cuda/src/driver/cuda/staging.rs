//! Copies from host memory that only wait for a free slot.
//!
//! The driver copies from pageable memory too, but then the caller waits until the stream gets there:
//! preparing a step would wait for the running one. Here the bytes go to page-locked memory, which the GPU
//! reads later. The caller waits only when it is several megabytes ahead.

use super::context::Stream;
use super::events;
use crate::driver::Ptr;
use crate::error::Result;
use crate::gpus::check;
use crate::number::number;
use core::ffi::c_void;
use cudarc::driver::sys;
use std::ptr;

const SLOTS: usize = 8;
/// Bytes of a slot.
pub(super) const BYTES: usize = 1 << 20;

/// A ring of slots in page-locked memory.
pub(super) struct Staging {
    slots: Vec<Slot>,
    next: usize,
}

impl Staging {
    /// In the thread's current context.
    pub(super) fn new() -> Result<Staging> {
        Ok(Staging { slots: (0..SLOTS).map(|_| Slot::new()).collect::<Result<_>>()?, next: 0 })
    }

    /// The event after which the next slot is free.
    pub(super) fn next_copied(&self) -> sys::CUevent {
        self.slots[self.next].copied
    }

    /// Copies to the device, in the stream's order. The caller may reuse the bytes on return.
    ///
    /// # Safety
    /// As many bytes from `dst` on are the device's memory, and the context is current.
    pub(super) unsafe fn write(&mut self, src: &[u8], dst: Ptr, stream: &Stream) -> Result<()> {
        for (k, piece) in src.chunks(BYTES).enumerate() {
            let slot = &self.slots[self.next];
            // SAFETY: as the caller says.
            unsafe { slot.write(piece, dst.offset(k * BYTES), stream) }?;
            self.next = (self.next + 1) % self.slots.len();
        }
        Ok(())
    }
}

/// A slot, and the event of the copy from it.
struct Slot {
    memory: *mut c_void,
    copied: sys::CUevent,
}

impl Slot {
    fn new() -> Result<Slot> {
        let mut slot = Slot { memory: ptr::null_mut(), copied: ptr::null_mut() };
        // SAFETY: a context is current; the call writes to the slot, which frees the memory when it is
        // dropped.
        check("cuMemHostAlloc", unsafe { number!(sys::cuMemHostAlloc(&raw mut slot.memory, BYTES, 0)) })?;
        slot.copied = events::create()?;
        Ok(slot)
    }

    /// # Safety
    /// As for [`Staging::write`]; there are at most [`BYTES`].
    unsafe fn write(&self, src: &[u8], dst: Ptr, stream: &Stream) -> Result<()> {
        // SAFETY: the event exists, and is complete if it was never recorded. Then the device no longer reads
        // the slot. The slot has room for the bytes. No other thread writes to it, because the ring is
        // borrowed.
        unsafe {
            check("cuEventSynchronize", number!(sys::cuEventSynchronize(self.copied)))?;
            ptr::copy_nonoverlapping(src.as_ptr(), self.memory.cast(), src.len());
            let copied = number!(sys::cuMemcpyHtoDAsync_v2(dst.0, self.memory, src.len(), stream.raw()));
            check("cuMemcpyHtoDAsync", copied)?;
            check("cuEventRecord", number!(sys::cuEventRecord(self.copied, stream.raw())))
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the context is current, and no copy is under way.
        unsafe {
            if !self.copied.is_null() {
                number!(sys::cuEventDestroy_v2(self.copied));
            }
            if !self.memory.is_null() {
                number!(sys::cuMemFreeHost(self.memory));
            }
        }
    }
}
