//! Device memory on the host: every allocation between two guards, whose bytes must not change.

use super::error::error;
use crate::driver::Ptr;
use program::Result;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;

/// Bytes on both sides of an allocation.
const GUARD: usize = 4096;

/// An allocation begins on a multiple of this, as on a GPU.
const ALIGN: u64 = 256;

/// The bytes of a guard: NaNs as float, bfloat16 and half alike, so that reading them shows too.
static POISON: [u8; GUARD] = {
    let mut bytes = [0xa5; GUARD];
    let mut odd = 1;
    while odd < GUARD {
        bytes[odd] = 0xff;
        odd += 2;
    }
    bytes
};

/// All live allocations, by their addresses.
#[derive(Default)]
pub(super) struct Memory {
    live: BTreeMap<u64, usize>,
    /// Damage that was found where no error could be returned. The next check reports it.
    damage: Option<String>,
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
        let start = (base + size_of::<u64>() as u64 + GUARD as u64).next_multiple_of(ALIGN);
        // SAFETY: in front of the guard the block has room for an address, on 8 bytes as the guard is.
        unsafe { *base_of(start) = base };
        for at in [start - GUARD as u64, start + bytes as u64] {
            // SAFETY: both guards lie in the block, whose address is still private.
            unsafe { core::ptr::copy_nonoverlapping(POISON.as_ptr(), at as *mut u8, GUARD) };
        }
        self.live.insert(start, bytes);
        Ok(Ptr(start))
    }

    /// Frees an allocation. If its guards are damaged, the next check says so.
    pub(super) fn free(&mut self, ptr: Ptr, bytes: usize) {
        if ptr == Ptr::NULL {
            return;
        }
        if self.live.remove(&ptr.0) != Some(bytes) {
            self.damage.get_or_insert(format!("{bytes} bytes were freed that were not allocated so"));
            return;
        }
        if let Some(damage) = damage(ptr.0, bytes) {
            self.damage.get_or_insert(damage);
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
        self.check_guards()?;
        // SAFETY: the range lies in one allocation, which no slice of Rust's overlaps.
        unsafe { core::ptr::copy_nonoverlapping(src.0 as *const u8, dst.as_mut_ptr(), dst.len()) };
        Ok(())
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

    /// Whether the guards around a kernel's pointer are intact after the launch.
    pub(super) fn check_guards_at(&self, kernel: &str, ptr: Ptr) -> Result<()> {
        match self.around(ptr).and_then(|(start, bytes)| damage(start, bytes)) {
            Some(damage) => Err(error(format!("kernel {kernel}: {damage}"))),
            None => Ok(()),
        }
    }

    /// Whether all guards are intact.
    pub(super) fn check_guards(&mut self) -> Result<()> {
        let found = self.damage.take();
        let found = found.or_else(|| self.live.iter().find_map(|(start, bytes)| damage(*start, *bytes)));
        found.map_or(Ok(()), |damage| Err(error(damage)))
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

/// The block of an allocation: its bytes, padding and the guards. No alignment is requested, since the
/// allocator would write to all of an aligned block. Untouched pages of this one cost nothing, however large
/// it is.
fn layout(bytes: usize) -> Option<Layout> {
    let more = size_of::<u64>() + ALIGN as usize + 2 * GUARD;
    Layout::from_size_align(bytes.checked_add(more)?, align_of::<u64>()).ok()
}

/// Where an allocation keeps its block's address: in front of its guard.
fn base_of(start: u64) -> *mut u64 {
    (start as usize - GUARD - size_of::<u64>()) as *mut u64
}

/// # Safety
/// `Memory::alloc` made an allocation of so many bytes there, and it is used no more.
unsafe fn release(start: u64, bytes: usize) {
    let Some(layout) = layout(bytes) else { return };
    // SAFETY: `alloc` left there where the block with this layout begins.
    unsafe { dealloc(*base_of(start) as *mut u8, layout) };
}

/// A description of a write outside of a live allocation, if there was one.
fn damage(start: u64, bytes: usize) -> Option<String> {
    let changed = |at: u64| {
        // SAFETY: both guards of a live allocation lie in its block.
        let guard = unsafe { core::slice::from_raw_parts(at as *const u8, GUARD) };
        if guard == POISON {
            None
        } else {
            guard.iter().zip(&POISON).position(|(byte, poison)| byte != poison)
        }
    };
    let place = match (changed(start + bytes as u64), changed(start - GUARD as u64)) {
        (Some(at), _) => format!("{at} bytes behind the end"),
        (None, Some(at)) => format!("{} bytes before the start", GUARD - at),
        (None, None) => return None,
    };
    Some(format!("something wrote {place} of an allocation of {bytes} bytes"))
}
