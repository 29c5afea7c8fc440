//! Device memory on the host. A launch is told of all allocations, and may access nothing else.

use super::error::error;
use super::object::Allocation;
use crate::driver::Ptr;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use towers_program::Result;

/// An allocation begins on a multiple of this, as on a GPU.
const ALIGN: u64 = 256;

/// Bytes behind an allocation that belong to none, so that what runs past its end meets no other one.
const GAP: usize = 4096;

/// All live allocations, by their addresses.
#[derive(Default)]
pub(super) struct Memory {
    live: BTreeMap<u64, usize>,
    /// A mistake that was found where no error could be returned. The next check reports it.
    mistake: Option<String>,
}

impl Memory {
    /// So many zeros; null for none.
    pub(super) fn alloc(&mut self, bytes: usize) -> Result<Ptr> {
        if bytes == 0 {
            return Ok(Ptr::NULL);
        }
        let layout = layout(bytes).ok_or_else(|| error(format!("{bytes} bytes are too many")))?;
        // SAFETY: the layout is larger than nothing.
        let base = unsafe { alloc_zeroed(layout) } as u64;
        if base == 0 {
            return Err(error(format!("no memory is left for {bytes} bytes")));
        }
        let start = (base + size_of::<u64>() as u64).next_multiple_of(ALIGN);
        // SAFETY: in front of the allocation the block has room for an address, on 8 bytes as both are.
        unsafe { *base_of(start) = base };
        self.live.insert(start, bytes);
        Ok(Ptr(start))
    }

    /// Frees an allocation. If it was not allocated so, the next check says so.
    pub(super) fn free(&mut self, ptr: Ptr, bytes: usize) {
        if ptr == Ptr::NULL {
            return;
        }
        if self.live.remove(&ptr.0) != Some(bytes) {
            self.mistake.get_or_insert(format!("{bytes} bytes were freed that were not allocated so"));
            return;
        }
        // SAFETY: `alloc` made it with this layout, and it is live no more.
        unsafe { release(ptr.0, bytes) };
    }

    pub(super) fn write(&self, src: &[u8], dst: Ptr) -> Result<()> {
        self.check_range("a write of the host", dst, src.len())?;
        // SAFETY: the range lies in one allocation, which no slice of Rust's overlaps.
        unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), dst.0 as *mut u8, src.len()) };
        Ok(())
    }

    pub(super) fn read(&mut self, src: Ptr, dst: &mut [u8]) -> Result<()> {
        self.check_range("a read of the host", src, dst.len())?;
        self.check()?;
        // SAFETY: the range lies in one allocation, which no slice of Rust's overlaps.
        unsafe { core::ptr::copy_nonoverlapping(src.0 as *const u8, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    /// All live allocations, sorted.
    pub(super) fn allocations(&self) -> Vec<Allocation> {
        self.live.iter().map(|(start, bytes)| Allocation(*start, *bytes as u64)).collect()
    }

    /// Whether a range lies within one allocation. An empty one may be anywhere.
    pub(super) fn check_range(&self, what: &str, ptr: Ptr, bytes: usize) -> Result<()> {
        let room = self.around(ptr).map(|(start, len)| len - (ptr.0 - start) as usize);
        match room {
            _ if bytes == 0 => Ok(()),
            Some(room) if bytes <= room => Ok(()),
            Some(room) => Err(error(format!("{what} of {bytes} bytes where the allocation has {room} left"))),
            None => Err(error(format!("{what} of {bytes} bytes outside of all allocations"))),
        }
    }

    /// Whether a kernel's pointer is null or lies in an allocation, or right behind one.
    pub(super) fn check_pointer(&self, kernel: &str, place: usize, ptr: Ptr) -> Result<()> {
        if ptr == Ptr::NULL || self.around(ptr).is_some() {
            return Ok(());
        }
        Err(error(format!("kernel {kernel}: argument {place} points to no live allocation")))
    }

    /// Reports a mistake, once.
    pub(super) fn check(&mut self) -> Result<()> {
        self.mistake.take().map_or(Ok(()), |mistake| Err(error(mistake)))
    }

    /// The allocation before or around an address: its start, and its bytes.
    fn around(&self, ptr: Ptr) -> Option<(u64, usize)> {
        let (start, bytes) = self.live.range(..=ptr.0).next_back()?;
        (ptr.0 - start <= *bytes as u64).then_some((*start, *bytes))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (start, bytes) in &self.live {
            // SAFETY: it is live, and nothing is left that could use it.
            unsafe { release(*start, *bytes) };
        }
    }
}

/// The block of an allocation: its bytes, padding and the gap. No alignment is requested, since the
/// allocator would write to all of an aligned block. Untouched pages of this one cost nothing, however large
/// it is.
fn layout(bytes: usize) -> Option<Layout> {
    let more = size_of::<u64>() + ALIGN as usize + GAP;
    Layout::from_size_align(bytes.checked_add(more)?, align_of::<u64>()).ok()
}

/// Where an allocation keeps its block's address: in front of it.
fn base_of(start: u64) -> *mut u64 {
    (start as usize - size_of::<u64>()) as *mut u64
}

/// # Safety
/// `Memory::alloc` made an allocation of so many bytes there, and it is used no more.
unsafe fn release(start: u64, bytes: usize) {
    let Some(layout) = layout(bytes) else { return };
    // SAFETY: `alloc` left there where the block with this layout begins.
    unsafe { dealloc(*base_of(start) as *mut u8, layout) };
}
