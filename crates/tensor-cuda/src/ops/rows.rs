//! Kernels around a matrix product: bias and activation, copies of strided tensors, column sums.

use crate::Cuda;
use crate::activation;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::place::Place;
use crate::source::Source;
use towers_program::{Activation, Result, Shape, Write};

pub(crate) const SOURCE: Source = Source {
    name: "rows.cu",
    text: include_str!("../../kernels/rows.cu"),
    kernels: &["move_rows", "column_sums", "sum_parts", "sum_parts_f32"],
};

/// Threads of a block, and loads of a thread at once, in rows.cu.
const THREADS: usize = 256;
const BATCH: usize = 4;
/// The most parts of column sums.
const MOST_PARTS: usize = 256;
/// Parts that a line of threads adds, if there are enough lines.
const PARTS_OF_A_LINE: usize = 8;
const MOST_LINES: usize = 16;

impl Cuda {
    /// `y = act(x + bias)` or `y += ...`, for tensors of one shape; they may be the same.
    pub(crate) fn move_rows(
        &self,
        op: &'static str,
        x: &Place,
        bias: Ptr,
        act: Activation,
        y: &Place,
        write: Write,
    ) -> Result<()> {
        let (rows, c) = (x.rows(), x.shape.c);
        let vector = self.vector(&[x, y]);
        let [down, beside] = lines(c, vector);
        let blocks = self.blocks(rows.div_ceil(BATCH), down as u32);
        let geometry =
            Geometry { grid: [blocks, beside as u32, 1], block: [THREADS as u32, 1, 1], shared: 0 };
        let size = |value| u32_of(op, "a size", value);
        let act = activation::packed(act);
        let add = u32::from(write == Write::Add);
        let arguments = args![
            x.ptr,
            size(x.stride)?,
            bias,
            act,
            y.ptr,
            size(y.stride)?,
            size(rows)?,
            size(c)?,
            add,
            vector
        ];
        self.launch("move_rows", geometry, arguments)
    }

    /// The column sums of a tensor: of parts of some rows each, then of these. The parts depend on the shape
    /// alone.
    pub(crate) fn column_sums(&self, op: &'static str, x: &Place, sums: Ptr) -> Result<()> {
        let (rows, c) = (x.rows(), x.shape.c);
        if c == 0 {
            return Ok(());
        }
        if rows == 0 {
            // SAFETY: the span of the sums was checked.
            return self.work(|| unsafe { self.driver().clear(sums, c * size_of::<f32>()) });
        }
        let vector = self.vector(&[x]);
        let [down, beside] = lines(c, vector);
        let each = rows_each(rows, down);
        let parts = rows.div_ceil(each);
        let partial = if parts == 1 { sums } else { self.scratch(parts * c * size_of::<f32>())? };
        let size = |value| u32_of(op, "a size", value);
        let grid = [size(parts)?, size(beside)?, 1];
        let geometry = Geometry { grid, block: [THREADS as u32, 1, 1], shared: 0 };
        let arguments = args![x.ptr, size(x.stride)?, size(rows)?, size(c)?, size(each)?, partial, vector];
        self.launch("column_sums", geometry, arguments)?;
        if parts == 1 {
            return Ok(());
        }
        self.sum_parts("sum_parts_f32", op, partial, [parts, c], sums, Write::Set)
    }

    /// `out = ...` or `out += ...`, the sum of this number of parts of `size` floats, by one of the kernels for
    /// it.
    pub(crate) fn sum_parts(
        &self,
        kernel: &'static str,
        op: &'static str,
        partial: Ptr,
        [parts, size]: [usize; 2],
        out: Ptr,
        write: Write,
    ) -> Result<()> {
        // Small results need all the threads that they can have.
        let vector = if size.is_multiple_of(4) && size >= 4096 { 4 } else { 1 };
        let blocks = u32_of(op, "the size of a result", size.div_ceil(32 * vector))?;
        let lines = parts.div_ceil(PARTS_OF_A_LINE).clamp(1, MOST_LINES) as u32;
        let geometry = Geometry { grid: [blocks, 1, 1], block: [32, lines, 1], shared: 0 };
        let (parts, add) = (u32_of(op, "the number of parts", parts)?, u32::from(write == Write::Add));
        self.launch(kernel, geometry, args![partial, parts, size as u64, out, add, vector as u32])
    }

    /// Reserves the memory for column sums of tensors up to this large.
    pub(crate) fn prepare_column_sums(&self, x: Shape, training: bool) -> Result<()> {
        if training && !x.is_empty() {
            self.scratch(MOST_PARTS.saturating_mul(x.c).saturating_mul(size_of::<f32>()))?;
        }
        Ok(())
    }
}

/// Rows that a block of rows.cu handles at once, and blocks side by side, for `c` channels.
fn lines(c: usize, vector: u32) -> [usize; 2] {
    let packs = c / vector as usize;
    [THREADS / packs.min(THREADS), packs.div_ceil(THREADS)]
}

/// Rows of a part of the column sums, if a block handles `down` at once.
fn rows_each(rows: usize, down: usize) -> usize {
    rows.div_ceil(MOST_PARTS).max(2 * BATCH * down)
}
