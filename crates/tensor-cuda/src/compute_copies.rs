//! Compute copies of the weights for matrix products: transposed, in the format of activations.
//!
//! In an arena of parameters, weights lie as (inputs, outputs) in f32. An engine needs (outputs, inputs) in
//! the format of activations. So every weight that an op has used has a compute copy beside the arena. Every
//! change of the arena refreshes all of them in one launch. In the same way, gradients of weights are
//! computed in copies beside an arena of gradients, and `finish_grads` transposes them into the arena.

use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::lock::lock;
use crate::memory::Memory;
use crate::source::Source;
use crate::{Buffer, Cuda};
use program::{Result, Span};

pub(crate) const SOURCE: Source = Source {
    name: "compute_copies.cu",
    text: include_str!("../kernels/compute_copies.cu"),
    kernels: &["copy_weights", "copy_grads"],
};

/// Threads of a block, and the side of a tile, in compute_copies.cu.
const THREADS: u32 = 256;
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
    weights: Table,
    grads: Table,
}

/// Compute copies, and their table for the kernels.
#[derive(Debug, Default)]
struct Table {
    all: Vec<Kept>,
    /// `struct Table` in compute_copies.cu.
    memory: Option<Memory>,
    tiles: u32,
}

#[derive(Debug)]
struct Kept {
    weight: Weight,
    memory: Memory,
    /// Whether it is in the kernels' table. It is not if a weight that overlaps it was used later.
    live: bool,
}

impl Cuda {
    /// The compute copy of a weight of `params`, up to date.
    pub(crate) fn compute_weight(&self, op: &'static str, params: &Buffer, weight: Weight) -> Result<Ptr> {
        let mut copies = lock(&params.compute_copies);
        let (ptr, new) = copies.weights.find(self, op, weight)?;
        if new {
            self.transpose("copy_weights", params, &copies.weights, None)?;
        }
        Ok(ptr)
    }

    /// The place where the gradient of a weight of `grads` is computed.
    pub(crate) fn compute_grad(&self, op: &'static str, grads: &Buffer, weight: Weight) -> Result<Ptr> {
        Ok(lock(&grads.compute_copies).grads.find(self, op, weight)?.0)
    }

    /// Brings the compute copies of weights up to date, after every change of a buffer. For a buffer without
    /// compute copies it does nothing.
    pub(crate) fn refresh_compute_copies(&self, params: &Buffer) -> Result<()> {
        self.transpose("copy_weights", params, &lock(&params.compute_copies).weights, None)
    }

    /// Transposes the gradients of weights from their compute copies into the run `at` of the arena. It does
    /// this for all weights there that ever had one, so a captured graph does the same each time. Earlier
    /// values in these places of the arena are lost.
    pub(crate) fn finish_compute_grads(&self, grads: &Buffer, at: Span) -> Result<()> {
        self.transpose("copy_grads", grads, &lock(&grads.compute_copies).grads, Some(at))
    }

    /// Transposes all weights, or those of a run of the arena.
    fn transpose(&self, kernel: &'static str, arena: &Buffer, table: &Table, at: Option<Span>) -> Result<()> {
        let Some(memory) = table.memory.as_ref().filter(|_| table.tiles > 0) else { return Ok(()) };
        // Users of a compute copy have declared its place in the arena, which stands for both.
        let run = at.unwrap_or(Span::new(0, arena.len));
        let [first, bytes] = [run.offset, run.len].map(|elements| elements * arena.format.bytes());
        self.note_run(arena.memory.ptr().offset(first), bytes);
        let (geometry, arena, table) =
            (Geometry::line(table.tiles, THREADS), arena.memory.ptr(), memory.ptr());
        match at {
            None => self.launch(kernel, geometry, args![arena, table]),
            Some(at) => self.launch(kernel, geometry, args![arena, table, at.offset as u64, at.end() as u64]),
        }
    }
}

impl Table {
    /// The compute copy of a weight, and whether it is new.
    fn find(&mut self, cuda: &Cuda, op: &'static str, weight: Weight) -> Result<(Ptr, bool)> {
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
