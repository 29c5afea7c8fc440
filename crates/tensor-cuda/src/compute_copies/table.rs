//! Compute copies in device memory, and their table for the kernels.

use crate::Cuda;
use crate::driver::{Ptr, u32_of};
use crate::memory::Memory;
use towers_program::{Result, Span};

/// The side of a tile in compute_copies.cu.
const TILE: usize = 64;
/// Bytes of `struct Kept`, and of the fields before it in `struct Table`.
const KEPT_BYTES: usize = 32;
/// The most weights of an arena. Their table never moves, since captured graphs contain its address.
const MOST: usize = 2048;

/// A weight in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) span: Span,
    /// Inputs (of all taps) and outputs.
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// The compute copies of an arena: of parameters, or of gradients.
#[derive(Debug, Default)]
pub(crate) struct ComputeCopies {
    pub(super) weights: Table,
    pub(super) grads: Table,
}

/// Compute copies, and their table for the kernels.
#[derive(Debug, Default)]
pub(super) struct Table {
    all: Vec<Kept>,
    /// `struct Table` in compute_copies.cu.
    pub(super) memory: Option<Memory>,
    pub(super) tiles: u32,
}

#[derive(Debug)]
struct Kept {
    weight: Weight,
    memory: Memory,
    /// Whether it is in the kernels' table. It is not if a weight that overlaps it was used later.
    live: bool,
}

impl Table {
    /// The compute copy of a weight, and whether it is new.
    pub(super) fn find(&mut self, cuda: &Cuda, op: &'static str, weight: Weight) -> Result<(Ptr, bool)> {
        let known = self.all.iter().position(|kept| kept.weight == weight);
        if let Some(kept) = known.map(|at| &self.all[at]).filter(|kept| kept.live) {
            return Ok((kept.memory.ptr(), false));
        }
        if cuda.is_capturing() {
            let hint = "run every op once before it is captured";
            return Err(cuda.error(format!("{op}: these weights are used for the first time; {hint}")));
        }
        let at = match known {
            Some(at) => at,
            None => {
                let bytes = weight.span.len * cuda.format().bytes();
                let memory = Memory::zeros(cuda.driver(), bytes)?;
                self.all.push(Kept { weight, memory, live: false });
                self.all.len() - 1
            }
        };
        // A span stands for a tensor, so an overlapping tensor replaces the old one.
        let overlaps = |a: Span, b: Span| a.offset < b.end() && b.offset < a.end();
        self.all.iter_mut().for_each(|kept| kept.live &= !overlaps(kept.weight.span, weight.span));
        self.all[at].live = true;
        let written = self.write(cuda, op);
        self.all[at].live = written.is_ok();
        written.map(|()| (self.all[at].memory.ptr(), true))
    }

    /// Writes the table for the kernels.
    fn write(&mut self, cuda: &Cuda, op: &'static str) -> Result<()> {
        let (mut tiles, mut count, mut bytes) = (0, 0_u32, vec![0; KEPT_BYTES]);
        for Kept { weight, memory, .. } in self.all.iter().filter(|kept| kept.live) {
            let size = |value| u32_of(op, "the size of the weights", value);
            bytes.extend((weight.span.offset as u64).to_le_bytes());
            bytes.extend(memory.ptr().0.to_le_bytes());
            for word in [size(weight.inputs)?, size(weight.outputs)?, size(tiles)?, 0] {
                bytes.extend(word.to_le_bytes());
            }
            tiles += weight.inputs.div_ceil(TILE) * weight.outputs.div_ceil(TILE);
            count += 1;
        }
        self.tiles = u32_of(op, "the size of all weights", tiles)?;
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tiles.to_le_bytes());
        if count as usize > MOST {
            return Err(cuda.error(format!("{op}: an arena of more than {MOST} weights")));
        }
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => Memory::zeros(cuda.driver(), KEPT_BYTES * (1 + MOST))?,
        };
        // SAFETY: the table has room for so many.
        let written = unsafe { cuda.driver().write(&bytes, memory.ptr()) };
        self.memory = Some(memory);
        written
    }
}
