//! Convolutions with windows of 3 x 3 and a stride of 1, by kernels that keep the input of the window in
//! shared memory.
//!
//! They need tensor cores and channels in packs of 8. Those of [`product`](super::product) compute the rest.

use super::product::{BLOCKS, Pass, divisor, in_parts, parts};
use crate::Cuda;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::source::Source;
use program::{Conv2d, Pad, Result, Shape, Write};

pub(crate) const SOURCE: Source = Source {
    name: "sliding.cu",
    text: include_str!("../../kernels/sliding.cu"),
    kernels: &[
        "slide_fwd_256x32",
        "slide_fwd_256x64",
        "slide_fwd_256x96",
        "slide_fwd_128x32",
        "slide_fwd_128x64",
        "slide_fwd_128x96",
        "slide_data_256x32",
        "slide_data_256x64",
        "slide_data_256x96",
        "slide_data_128x32",
        "slide_data_128x64",
        "slide_data_128x96",
        "slide_filter",
    ],
};

/// A tile of the forward pass or the one for data, which computes this many positions and outputs.
struct Tile {
    positions: usize,
    outputs: usize,
    /// The estimated cost of an output beside those of other tiles. Few outputs share little of the input,
    /// and of blocks with the most outputs only one fits.
    toil: usize,
    forward: &'static str,
    data: &'static str,
}

const fn tile(positions: usize, outputs: usize, forward: &'static str, data: &'static str) -> Tile {
    let toil = match outputs {
        96 => 21,
        64 => 20,
        _ => 25,
    };
    Tile { positions, outputs, toil, forward, data }
}

/// Of tiles with the same outputs, those with more positions come first.
const TILES: [Tile; 6] = [
    tile(256, 96, "slide_fwd_256x96", "slide_data_256x96"),
    tile(128, 96, "slide_fwd_128x96", "slide_data_128x96"),
    tile(256, 64, "slide_fwd_256x64", "slide_data_256x64"),
    tile(128, 64, "slide_fwd_128x64", "slide_data_128x64"),
    tile(256, 32, "slide_fwd_256x32", "slide_data_256x32"),
    tile(128, 32, "slide_fwd_128x32", "slide_data_128x32"),
];

/// Channels in shared memory at once, and elements from a row of them to the next.
const CHUNK: usize = 32;
const PITCH: usize = CHUNK + 8;
/// Weights in shared memory or on their way, in taps.
const SLICES: usize = 4;
const TAPS: usize = 9;
/// Positions of a step of the weights' gradient.
const RUN: usize = 128;
/// Bytes of an element.
const ELEMENT: usize = 2;
/// Shared memory of a block on every GPU with tensor cores for these formats.
const SHARED: usize = 99 << 10;
/// Runs of positions that a block should have to do, at least.
const LEAST_RUNS: usize = 2;
/// Places of pixels stay far below 32 bits.
const MOST: usize = 1 << 30;

/// A pass and its tiling.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sliding {
    kernel: &'static str,
    threads: usize,
    shared: usize,
    /// Blocks of a part, side by side and below each other.
    tiles: [usize; 2],
    /// Parts of the sums, and the chunks or runs of each.
    parts: [usize; 2],
    /// Channels of the first tensor and of the second or of the result.
    channels: [usize; 2],
    /// Elements of the result.
    size: usize,
    /// The tensor under the window and the one that it moves over.
    image: Shape,
    grid: Shape,
    pad: Pad,
}

impl Sliding {
    /// The pass for a convolution from `x` to `y`, if these kernels can compute it. Its tiling depends on the
    /// sizes alone.
    pub(super) fn new(cuda: &Cuda, conv: &Conv2d, pass: Pass, x: Shape, y: Shape) -> Option<Sliding> {
        let can = cuda.driver().tensor_cores() && cuda.format().bytes() == ELEMENT;
        if can { Sliding::cut(conv, pass, x, y) } else { None }
    }

    fn cut(conv: &Conv2d, pass: Pass, x: Shape, y: Shape) -> Option<Sliding> {
        let Pad { top, bottom, left, right } = conv.pad;
        let fits = conv.kernel == [3, 3] && conv.stride == [1, 1];
        if !fits
            || [top, bottom, left, right].iter().any(|&pad| pad > 2)
            || !x.c.is_multiple_of(8)
            || !y.c.is_multiple_of(8)
        {
            return None;
        }
        let (image, grid, pad) = Sliding::sides(conv, pass, x, y);
        let (line, lines) = padded(image, pad);
        let positions = image.n.checked_mul(lines)?.checked_mul(line).filter(|&all| all < MOST)?;
        if pass == Pass::Filter {
            return Sliding::filter(image, grid, pad, positions);
        }
        let fitting = || TILES.iter().filter(|tile| tile.shared(line) <= SHARED);
        let outputs = fitting().min_by_key(|tile| grid.c.next_multiple_of(tile.outputs) * tile.toil)?.outputs;
        let mut alike = fitting().filter(|tile| tile.outputs == outputs);
        let full = alike.clone().find(|tile| tile.count(positions, grid.c) >= BLOCKS);
        Some(Sliding::of(full.or_else(|| alike.next_back())?, pass, image, grid, pad))
    }

    /// The tensor under the window, the one that it moves over, and the zeros around the first.
    fn sides(conv: &Conv2d, pass: Pass, x: Shape, y: Shape) -> (Shape, Shape, Pad) {
        let Pad { top, bottom, left, right } = conv.pad;
        match pass {
            Pass::Data => (y, x, Pad { top: 2 - top, bottom: 2 - bottom, left: 2 - left, right: 2 - right }),
            Pass::Forward | Pass::Filter => (x, y, conv.pad),
        }
    }

    /// The forward pass or the one for data, in these tiles.
    fn of(tile: &Tile, pass: Pass, image: Shape, grid: Shape, pad: Pad) -> Sliding {
        let (line, lines) = padded(image, pad);
        let tiles = tile.count(image.n * lines * line, grid.c);
        Sliding {
            kernel: if pass == Pass::Forward { tile.forward } else { tile.data },
            threads: tile.positions * tile.outputs / (64 * 32) * 32,
            shared: tile.shared(line),
            tiles: [tiles, 1],
            parts: parts(tiles, image.c.div_ceil(CHUNK), 1),
            channels: [image.c, grid.c],
            size: grid.len(),
            image,
            grid,
            pad,
        }
    }

    fn filter(x: Shape, dy: Shape, pad: Pad, positions: usize) -> Option<Sliding> {
        let (line, _) = padded(x, pad);
        // A warp has 16 inputs. Those of a block share their reads of dy, so more of them are faster.
        let groups = x.c.div_ceil(16);
        let cost = |&warps: &usize| groups.next_multiple_of(warps) * [32, 25, 21, 20][warps - 1];
        let warps = (1..=4).filter(|&warps| filter_shared(warps, line) <= SHARED).min_by_key(cost)?;
        let tiles = [groups.div_ceil(warps), dy.c.div_ceil(CHUNK)];
        Some(Sliding {
            kernel: "slide_filter",
            threads: 32 * warps,
            shared: filter_shared(warps, line),
            tiles,
            parts: parts(tiles[0] * tiles[1], positions.div_ceil(RUN), LEAST_RUNS),
            channels: [x.c, dy.c],
            size: TAPS * x.c * dy.c,
            image: x,
            grid: dy,
            pad,
        })
    }

    /// Parts of the result, and the floats of each.
    pub(super) fn partial(&self) -> [usize; 2] {
        [self.parts[0], self.size]
    }

    /// `out = ...` or `out += ...`, from the image and the weights or, for their gradient, dy.
    pub(super) fn run(
        &self,
        cuda: &Cuda,
        op: &'static str,
        [image, other, out]: [Ptr; 3],
        write: Write,
    ) -> Result<()> {
        let (line, lines) = padded(self.image, self.pad);
        let [parts, each] = self.parts;
        let word = |value| u32_of(op, "a size", value);
        let grid = [word(self.tiles[0])?, word(self.tiles[1])?, word(parts)?];
        let geometry = Geometry { grid, block: [word(self.threads)?, 1, 1], shared: word(self.shared)? };
        in_parts(cuda, op, self.partial(), out, write, |partial| {
            let arguments = args![
                image,
                other,
                out,
                partial,
                word(each)?,
                u32::from(write == Write::Add),
                word(self.channels[0])?,
                word(self.channels[1])?,
                word(self.image.n * lines * line)?,
                divisor(line),
                divisor(lines),
                word(self.image.h)?,
                word(self.image.w)?,
                word(self.pad.top)?,
                word(self.pad.left)?,
                word(self.grid.rows())?,
                word(self.grid.h)?,
                word(self.grid.w)?,
            ];
            cuda.launch(self.kernel, geometry, arguments)
        })
    }
}

/// Positions of a line with the zeros after it, and lines of a sample with those after them. Zeros after one
/// are also those before the next.
fn padded(image: Shape, pad: Pad) -> (usize, usize) {
    (image.w + pad.left.max(pad.right), image.h + pad.top.max(pad.bottom))
}

/// Positions that are read after the last one of a tile.
fn reach(line: usize) -> usize {
    2 * line + 2
}

/// Bytes of a table with a pixel for each row.
fn table(rows: usize) -> usize {
    rows.next_multiple_of(4) * size_of::<u32>()
}

impl Tile {
    /// Tiles of so many positions and outputs.
    fn count(&self, positions: usize, outputs: usize) -> usize {
        positions.div_ceil(self.positions) * outputs.div_ceil(self.outputs)
    }

    /// Bytes of shared memory. The weights of the pass for data take no more than those of the forward pass.
    fn shared(&self, line: usize) -> usize {
        let rows = self.positions + reach(line);
        table(rows) + (2 * rows + SLICES * self.outputs) * PITCH * ELEMENT
    }
}

fn filter_shared(warps: usize, line: usize) -> usize {
    let rows = RUN + reach(line);
    2 * (table(RUN) + table(rows) + (RUN * PITCH + rows * (16 * warps + 8)) * ELEMENT)
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests;
