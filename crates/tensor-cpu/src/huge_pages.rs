//! Large pages for large buffers: a kernel that walks dozens of places at once needs an entry of the processor's page table
//! for each of them, and there are few.

/// The size of a large page on the systems that [`prefer`] knows.
const PAGE: usize = 2 << 20;

/// Asks the system to put untouched memory on large pages. If it refuses, everything works, but more slowly.
pub(crate) fn prefer<T>(memory: &mut [T]) {
    let range = memory.as_mut_ptr_range();
    let (start, end) = ((range.start as usize).next_multiple_of(PAGE), range.end as usize / PAGE * PAGE);
    if start < end {
        advise(start, end - start);
    }
}

#[cfg(target_os = "linux")]
fn advise(start: usize, len: usize) {
    // SAFETY: whole pages of memory that the caller has borrowed; the advice changes nothing in it. A refusal is fine.
    unsafe {
        libc::madvise(core::ptr::with_exposed_provenance_mut(start), len, libc::MADV_HUGEPAGE);
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_start: usize, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_can_be_used_afterwards() {
        for len in [0, 1, PAGE / 8, PAGE, 5 * PAGE / 8 + 3] {
            let mut memory: Vec<u64> = Vec::with_capacity(len);
            prefer(memory.spare_capacity_mut());
            memory.resize(len, 7);
            assert!(memory.iter().all(|&x| x == 7));
        }
    }
}
