use crate::huge_pages;
use core::ops::{Deref, DerefMut};
use tensor_backend::{Backend, Error, Result};

/// One cache line of numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A run of f32 in host memory that starts on a cache line.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Buffer::default();
        buffer.grow(len);
        buffer
    }

    /// `len` zeros for a device.
    ///
    /// # Errors
    /// If the memory can't be had.
    pub(crate) fn try_zeros(device: &impl Backend, len: usize) -> Result<Self> {
        Ok(Buffer { lines: filled(device, len.div_ceil(16), Line([0.0; 16]))?, len })
    }

    /// Makes the buffer at least `len` long; new elements are 0. Allocates only to grow past its capacity.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            let lines = len.div_ceil(16);
            if lines > self.lines.capacity() {
                let mut all = Vec::with_capacity(lines);
                huge_pages::prefer(all.spare_capacity_mut());
                all.extend_from_slice(&self.lines);
                self.lines = all;
            }
            self.lines.resize(lines, Line([0.0; 16]));
            self.len = len;
        }
    }
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
        // SAFETY: `lines` holds at least `len` initialized f32s back to back (`Line` is `repr(C)` without padding).
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_cache_line_and_grows() {
        let mut buffer = Buffer::zeros(3);
        buffer[2] = 5.0;
        buffer.grow(100);
        assert_eq!((buffer.len(), buffer[2], buffer[99]), (100, 5.0, 0.0));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
    }
}
