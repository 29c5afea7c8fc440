use crate::element::{Element, Format};
use crate::huge_pages;
use core::alloc::Layout;
use core::ops::{Deref, DerefMut};
use std::alloc::alloc_zeroed;
use towers_program::{Backend, Error, Result};

/// Numbers of 32 bits in a cache line.
const LINE: usize = 16;

/// A run of numbers in host memory that starts on a cache line: of f32, or of bf16 where a device
/// [stores activations](Backend::alloc_activations) so. As a slice it is one of f32; of bf16 that slice is empty.
///
/// New memory comes from the system, which promises zeros and gives pages when something is written to them. So to allocate costs
/// next to nothing, and the pages of activations are made by the threads that fill them, in the first step.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Vec<f32>,
    /// The first number of the run, at the start of a cache line.
    start: usize,
    len: usize,
    format: Format,
}

impl Buffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Buffer::of(vec![0.0; len + LINE - 1], len, Format::F32)
    }

    /// `len` zeros for a device.
    ///
    /// # Errors
    /// If the memory can't be had.
    pub(crate) fn try_zeros(device: &impl Backend, len: usize, format: Format) -> Result<Self> {
        let bytes = len.saturating_mul(format.bytes());
        let memory = bytes.div_ceil(size_of::<f32>()).checked_add(LINE - 1).and_then(fresh_zeros);
        memory
            .map(|memory| Buffer::of(memory, len, format))
            .ok_or_else(|| Error::OutOfMemory { bytes, device: device.name() })
    }

    /// The run of `len` in zeros that nothing was written to yet.
    fn of(mut memory: Vec<f32>, len: usize, format: Format) -> Self {
        huge_pages::prefer(&mut memory);
        let start = memory.as_ptr().align_offset(LINE * size_of::<f32>());
        Buffer { memory, start, len, format }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it holds.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Its numbers, if they are of this type.
    pub(crate) fn numbers<E: Element>(&self) -> Option<&[E]> {
        let first = self.memory[self.start..].as_ptr().cast();
        // SAFETY: the memory is as long as this many numbers of the format, of which the type's every run of bits is one.
        (self.format == E::FORMAT).then(|| unsafe { core::slice::from_raw_parts(first, self.len) })
    }

    /// The same, to write.
    pub(crate) fn numbers_mut<E: Element>(&mut self) -> Option<&mut [E]> {
        let first = self.memory[self.start..].as_mut_ptr().cast();
        // SAFETY: as above.
        (self.format == E::FORMAT).then(|| unsafe { core::slice::from_raw_parts_mut(first, self.len) })
    }

    /// Makes the buffer at least `len` long; new elements are 0.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            *self = self.extended(len);
        }
    }

    /// A copy with zeros after it.
    fn extended(&self, len: usize) -> Self {
        let words = |len: usize| (len * self.format.bytes()).div_ceil(size_of::<f32>());
        let mut copy = Buffer::of(vec![0.0; words(len) + LINE - 1], len, self.format);
        copy.memory[copy.start..][..words(self.len)]
            .copy_from_slice(&self.memory[self.start..][..words(self.len)]);
        copy
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        self.extended(self.len)
    }
}

/// `len` zeros as the system gives them, unwritten; `None` if it gives none.
fn fresh_zeros(len: usize) -> Option<Vec<f32>> {
    let layout = Layout::array::<f32>(len).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<f32>();
    // SAFETY: the allocation is the vector's from now on, of this very layout; its bytes are 0, and so are its numbers.
    (!memory.is_null()).then(|| unsafe { Vec::from_raw_parts(memory, len, len) })
}

/// So many times `value`, for a device.
///
/// # Errors
/// If the memory can't be had.
pub(crate) fn filled<T: Clone>(device: &impl Backend, len: usize, value: T) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes, device: device.name() })?;
    huge_pages::prefer(all.spare_capacity_mut());
    all.resize(len, value);
    Ok(all)
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.numbers().unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.numbers_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;

    #[test]
    fn starts_on_a_cache_line_and_grows() {
        let mut buffer = Buffer::zeros(3);
        buffer[2] = 5.0;
        buffer.grow(100);
        assert_eq!((buffer.len(), buffer[2], buffer[99]), (100, 5.0, 0.0));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        let copy = buffer.clone();
        assert_eq!((copy.as_ptr() as usize % 64, &copy[..]), (0, &buffer[..]));
        assert_eq!((Buffer::zeros(0).len(), Buffer::default().len()), (0, 0));
    }

    #[test]
    fn memory_that_no_machine_has_is_an_error() {
        for len in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 4 + 1] {
            assert!(
                matches!(Buffer::try_zeros(&Cpu::new(1), len, Format::F32), Err(Error::OutOfMemory { .. })),
                "{len}"
            );
        }
    }
}
