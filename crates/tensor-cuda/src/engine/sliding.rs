//! Gradients of the weights of convolutions with windows of 3 x 3 and a stride of 1, by a kernel that keeps the
//! input of the window in shared memory.
//!
//! It needs tensor cores and channels in packs of 8. Those of [`product`](super::product) compute the rest.

use super::product::{divisor, in_parts, parts};
use crate::Cuda;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::source::Source;
use towers_program::{Conv2d, Pad, Result, Shape, Write};

pub(crate) const SOURCE: Source =
    Source { name: "sliding.cu", text: include_str!("../../kernels/sliding.cu"), kernels: &["slide_filter"] };

/// Outputs of a block, and elements from a row of them in shared memory to the next.
const CHUNK: usize = 32;
const PITCH: usize = CHUNK + 8;
const TAPS: usize = 9;
/// Positions of a step.
const RUN: usize = 128;
/// Bytes of an element.
const ELEMENT: usize = 2;
/// Shared memory of a block on every GPU with tensor cores for these formats.
const SHARED: usize = 99 << 10;
/// Runs of positions that a block should have to do, at least.
const LEAST_RUNS: usize = 2;
/// Places of pixels stay far below 32 bits.
const MOST: usize = 1 << 30;

/// The gradient of the weights of a convolution, and its tiling.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sliding {
    /// Warps of a block. Each has 16 inputs.
    warps: usize,
    /// Blocks of a part, by inputs and by outputs.
    tiles: [usize; 2],
    /// Parts of the sums, and the runs of each.
    parts: [usize; 2],
    x: Shape,
    y: Shape,
    pad: Pad,
}

impl Sliding {
    /// The pass for a convolution from `x` to `y`, if this kernel can compute it. Its tiling depends on the
    /// sizes alone.
    pub(super) fn new(cuda: &Cuda, conv: &Conv2d, x: Shape, y: Shape) -> Option<Sliding> {
        let can = cuda.driver().tensor_cores() && cuda.format().bytes() == ELEMENT;
        if can { Sliding::cut(conv, x, y) } else { None }
    }

    fn cut(conv: &Conv2d, x: Shape, y: Shape) -> Option<Sliding> {
        let pad @ Pad { top, bottom, left, right } = conv.pad;
        let fits = conv.kernel == [3, 3] && conv.stride == [1, 1];
        if !fits
            || [top, bottom, left, right].iter().any(|&pad| pad > 2)
            || !x.c.is_multiple_of(8)
            || !y.c.is_multiple_of(8)
        {
            return None;
        }
        let (line, lines) = padded(x, pad);
        let positions = x.n.checked_mul(lines)?.checked_mul(line).filter(|&all| all < MOST)?;
        // The inputs of a block share their reads of dy, so more of them are faster.
        let groups = x.c.div_ceil(16);
        let cost = |&warps: &usize| groups.next_multiple_of(warps) * [32, 25, 21, 20][warps - 1];
        let warps = (1..=4).filter(|&warps| shared(warps, line) <= SHARED).min_by_key(cost)?;
        let tiles = [groups.div_ceil(warps), y.c.div_ceil(CHUNK)];
        let parts = parts(tiles[0] * tiles[1], positions.div_ceil(RUN), LEAST_RUNS);
        Some(Sliding { warps, tiles, parts, x, y, pad })
    }

    /// Parts of the result, and the floats of each.
    pub(super) fn partial(&self) -> [usize; 2] {
        [self.parts[0], TAPS * self.x.c * self.y.c]
    }

    /// `dw = x^T dy`.
    pub(super) fn run(&self, cuda: &Cuda, op: &'static str, [x, dy, dw]: [Ptr; 3]) -> Result<()> {
        let (line, lines) = padded(self.x, self.pad);
        let [parts, runs] = self.parts;
        let word = |value| u32_of(op, "a size", value);
        let grid = [word(self.tiles[0])?, word(self.tiles[1])?, word(parts)?];
        let block = [word(32 * self.warps)?, 1, 1];
        let geometry = Geometry { grid, block, shared: word(shared(self.warps, line))? };
        in_parts(cuda, op, self.partial(), dw, Write::Set, |partial| {
            let arguments = args![
                x,
                dy,
                dw,
                partial,
                word(runs)?,
                word(self.x.c)?,
                word(self.y.c)?,
                word(self.x.n * lines * line)?,
                divisor(line),
                divisor(lines),
                word(self.x.h)?,
                word(self.x.w)?,
                word(self.pad.top)?,
                word(self.pad.left)?,
                word(self.y.h)?,
                word(self.y.w)?,
            ];
            cuda.launch("slide_filter", geometry, arguments)
        })
    }
}

/// Positions of a line with the zeros after it, and lines of a sample with those after them. Zeros after one
/// are also those before the next.
fn padded(x: Shape, pad: Pad) -> (usize, usize) {
    (x.w + pad.left.max(pad.right), x.h + pad.top.max(pad.bottom))
}

/// Bytes of a table with a pixel for each row.
fn table(rows: usize) -> usize {
    rows.next_multiple_of(4) * size_of::<u32>()
}

/// Bytes of shared memory of a block.
fn shared(warps: usize, line: usize) -> usize {
    // A window reads this far after its position.
    let rows = RUN + 2 * line + 2;
    2 * (table(RUN) + table(rows) + (RUN * PITCH + rows * (16 * warps + 8)) * ELEMENT)
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests;
