//! Compute copies of the weights for matrix products: transposed, in the format of activations.
//!
//! In an arena of parameters, weights lie as (inputs, outputs) in f32. An engine needs (outputs, inputs) in
//! the format of activations. So every weight that an op has used has a compute copy beside the arena. Every
//! change of the arena refreshes all of them in one launch. In the same way, gradients of weights are
//! computed in copies beside an arena of gradients, and `finish_grads` transposes them into the arena.

mod table;

pub(crate) use table::{ComputeCopies, Weight};

use crate::driver::{Geometry, Ptr, args};
use crate::lock::lock;
use crate::source::Source;
use crate::{Buffer, Cuda};
use table::Table;
use towers_program::{Result, Span};

pub(crate) const SOURCE: Source = Source {
    name: "compute_copies.cu",
    text: include_str!("../kernels/compute_copies.cu"),
    kernels: &["copy_weights", "copy_grads"],
};

/// Threads of a block in compute_copies.cu.
const THREADS: u32 = 256;

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
        self.capture_memory(&arena.memory);
        self.note_run(arena.memory.ptr().offset(first), bytes);
        let (geometry, arena, table) =
            (Geometry::line(table.tiles, THREADS), arena.memory.ptr(), memory.ptr());
        match at {
            None => self.launch(kernel, geometry, args![arena, table]),
            Some(at) => self.launch(kernel, geometry, args![arena, table, at.offset as u64, at.end() as u64]),
        }
    }
}

#[cfg(all(test, feature = "emulation"))]
mod tests {
    use super::*;
    use towers_program::{Backend as _, CapturedGraph as _, Precision, ReplayArgs};

    /// Its blocks then take several tiles, one after the other.
    #[test]
    fn a_captured_launch_covers_weights_that_came_later() {
        let cuda = match Cuda::emulated(Precision::Bf16) {
            Ok(cuda) => cuda,
            Err(e) => return println!("SKIPPED: {e}"),
        };
        let (inputs, outputs) = (130, 70);
        let values: Vec<f32> = (0..4 + inputs * outputs).map(|k| (k % 251) as f32).collect();
        let mut params = cuda.alloc(values.len()).unwrap();
        cuda.upload(&values, &mut params, 0).unwrap();
        let buffer = params.on::<Buffer>("test").unwrap();
        cuda.compute_weight("test", buffer, Weight { span: Span::new(0, 4), inputs: 2, outputs: 2 }).unwrap();
        cuda.begin_capture().unwrap();
        cuda.refresh_compute_copies(buffer).unwrap();
        let graph = cuda.end_capture().unwrap();
        let weight = Weight { span: Span::new(4, inputs * outputs), inputs, outputs };
        let copy = cuda.compute_weight("test", buffer, weight).unwrap();
        let mut bytes = vec![0; 2 * weight.span.len];
        // SAFETY: a copy has as many numbers as its weight, of two bytes.
        unsafe { cuda.driver().clear(copy, bytes.len()) }.unwrap();
        graph.replay(&ReplayArgs::default()).unwrap();
        // SAFETY: as above.
        unsafe { cuda.driver().read(copy, &mut bytes) }.unwrap();
        for (k, number) in bytes.chunks_exact(2).enumerate() {
            let (output, input) = (k / inputs, k % inputs);
            let number = half::bf16::from_le_bytes([number[0], number[1]]).to_f32();
            assert_eq!(number, values[4 + input * outputs + output], "of input {input}, output {output}");
        }
    }

    /// Its blocks pass over the tiles of gradients outside of the run.
    #[test]
    fn a_captured_launch_passes_over_gradients_of_other_runs() {
        let cuda = match Cuda::emulated(Precision::Bf16) {
            Ok(cuda) => cuda,
            Err(e) => return println!("SKIPPED: {e}"),
        };
        let (inputs, outputs, first) = (130, 70, Span::new(0, 4));
        let values: Vec<f32> = (0..4 + inputs * outputs).map(|k| k as f32 + 1.0).collect();
        let mut grads = cuda.alloc(values.len()).unwrap();
        cuda.upload(&values, &mut grads, 0).unwrap();
        let buffer = grads.on::<Buffer>("test").unwrap();
        cuda.compute_grad("test", buffer, Weight { span: first, inputs: 2, outputs: 2 }).unwrap();
        cuda.finish_compute_grads(buffer, first).unwrap(); // every op runs once before it is captured
        cuda.begin_capture().unwrap();
        cuda.finish_compute_grads(buffer, first).unwrap();
        let graph = cuda.end_capture().unwrap();
        let span = Span::new(4, inputs * outputs);
        cuda.compute_grad("test", buffer, Weight { span, inputs, outputs }).unwrap();
        graph.replay(&ReplayArgs::default()).unwrap();
        let mut left = vec![0.0; values.len()];
        cuda.download(&grads, 0, &mut left).unwrap();
        assert_eq!((&left[..4], &left[4..]), (&[0.0; 4][..], &values[4..]));
    }
}
