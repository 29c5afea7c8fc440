//! Device memory with an owner.

use crate::driver::{Driver, Ptr};
use crate::lock::lock;
use std::sync::{Arc, Mutex, Weak};
use towers_program::{Error, Result};

/// A run of bytes on the device, given back when dropped.
pub(crate) struct Memory(Arc<Allocation>);

/// The allocation of a [`Memory`]. A captured graph knows those that it uses.
pub(crate) struct Allocation {
    driver: Arc<dyn Driver>,
    ptr: Ptr,
    bytes: usize,
}

impl Memory {
    /// Zeros.
    pub(crate) fn zeros(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Memory> {
        let ptr = driver.alloc(bytes)?;
        Ok(Memory(Arc::new(Allocation { driver: Arc::clone(driver), ptr, bytes })))
    }

    pub(crate) fn ptr(&self) -> Ptr {
        self.0.ptr
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the memory came from `zeros`. A captured graph is not replayed without the memory that it works on: it holds it
        // for the time of a replay.
        unsafe { self.driver.free(self.ptr, self.bytes) }
    }
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes(), self.ptr().0)
    }
}

/// The memory that a captured graph works on.
#[derive(Default)]
pub(crate) struct Captured(Vec<Weak<Allocation>>);

impl Captured {
    pub(crate) fn add(&mut self, memory: &Memory) {
        let known = Arc::as_ptr(&memory.0);
        if self.0.iter().all(|other| !core::ptr::eq(other.as_ptr(), known)) {
            self.0.push(Arc::downgrade(&memory.0));
        }
    }

    /// All of it, so that it stays as long as this lives. `None` if some was given back.
    pub(crate) fn hold(&self) -> Option<Vec<Arc<Allocation>>> {
        self.0.iter().map(Weak::upgrade).collect()
    }
}

/// Scratch memory that grows. The last piece is in use. Earlier ones stay for the graphs that were captured
/// with them.
#[derive(Default)]
pub(crate) struct Scratch(Mutex<Slots>);

/// This number of consecutive ops have separate slots, so captured ops need not wait for each other.
const SLOTS: usize = 4;
/// Unless that takes more bytes than this.
const MOST: usize = 256 << 20;

#[derive(Default)]
struct Slots {
    all: Vec<Memory>,
    /// The last op, and its slot.
    op: u64,
    slot: usize,
    /// Whether there was no memory for slots, so that ops share one.
    scarce: bool,
}

impl Scratch {
    /// At least so many bytes.
    pub(crate) fn at_least(&self, driver: &Arc<dyn Driver>, bytes: usize) -> Result<Ptr> {
        Ok(lock(&self.0).last(driver, bytes)?.ptr())
    }

    /// At least so many bytes for an op, by its number: the same for all of the op.
    pub(crate) fn of_op(&self, driver: &Arc<dyn Driver>, bytes: usize, op: u64) -> Result<Ptr> {
        let mut slots = lock(&self.0);
        if slots.op != op {
            (slots.op, slots.slot) = (op, (slots.slot + 1) % SLOTS);
        }
        if bytes <= MOST / SLOTS && !slots.scarce {
            let slot = slots.slot;
            match slots.last(driver, SLOTS * bytes.next_multiple_of(ALIGNMENT)) {
                Err(Error::OutOfMemory { .. }) => slots.scarce = true,
                memory => {
                    let memory = memory?;
                    return Ok(memory.ptr().offset(slot * (memory.bytes() / SLOTS / ALIGNMENT * ALIGNMENT)));
                }
            }
        }
        Ok(slots.last(driver, bytes)?.ptr())
    }
}

/// Of allocations, in bytes.
const ALIGNMENT: usize = 256;

impl Slots {
    fn last(&mut self, driver: &Arc<dyn Driver>, bytes: usize) -> Result<&Memory> {
        if self.all.last().is_none_or(|last| last.bytes() < bytes) {
            self.all.push(Memory::zeros(driver, bytes.next_power_of_two().max(1 << 16))?);
        }
        Ok(&self.all[self.all.len() - 1])
    }
}
