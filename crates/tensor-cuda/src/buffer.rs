//! Runs of numbers on the device.

use crate::compute_copies::ComputeCopies;
use crate::format::Format;
use crate::memory::Memory;
use std::sync::Mutex;

/// A run of numbers on a CUDA device: f32, or in mixed precision the format of activations.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) memory: Memory,
    pub(crate) len: usize,
    pub(crate) format: Format,
    /// The compute copies of the weights in it, or of their gradients.
    pub(crate) compute_copies: Mutex<ComputeCopies>,
}

impl Buffer {
    pub(crate) fn new(memory: Memory, len: usize, format: Format) -> Buffer {
        Buffer { memory, len, format, compute_copies: Mutex::default() }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A run of unsigned integers on a CUDA device.
#[derive(Debug)]
pub(crate) struct Ints {
    pub(crate) memory: Memory,
    pub(crate) len: usize,
}

impl Ints {
    /// How many integers.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A run of bytes on a CUDA device.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) memory: Memory,
}

impl Bytes {
    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.bytes()
    }
}
