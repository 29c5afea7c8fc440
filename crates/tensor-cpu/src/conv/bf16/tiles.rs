//! What is done to numbers of 16 bits, and the table of functions for each [`Level`] that does it.
//!
//! A tile is 16 rows of 64 bytes. As operands they hold 32 numbers a row in the left one of a product and, in the right
//! one, pairs of numbers that follow each other in the sum, of 16 columns; as sums they hold 16 numbers of 32 bits.

#[cfg(target_arch = "x86_64")]
use super::amx;
use super::portable;
use crate::simd::Simd;

/// Rows and columns of sums in a tile.
pub(super) const SIDE: usize = 16;

/// Products that one step adds to a sum.
pub(super) const DEPTH: usize = 32;

/// Bytes of a tile, its numbers of 16 bits as an operand, and its numbers of 32 bits as sums.
pub(super) const TILE_BYTES: usize = 1024;
pub(super) const TILE_HALVES: usize = TILE_BYTES / 2;
pub(super) const TILE_SUMS: usize = TILE_BYTES / 4;

/// How a processor multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain loops, for tests: the same bits as [`Level::Amx`], at a snail's pace.
    Portable,
    /// Intel's AMX, in servers since 2023.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Level {
    /// The fastest one that goes with vectors of `simd`; `None` where products of 32 bits are as fast.
    pub(crate) fn detect(simd: crate::simd::Level) -> Option<Level> {
        match simd {
            crate::simd::Level::Portable => Some(Level::Portable),
            #[cfg(target_arch = "x86_64")]
            crate::simd::Level::Avx512 if amx::available() => Some(Level::Amx),
            _ => None,
        }
    }

    /// Its name: `portable` or `amx`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
        }
    }

    pub(super) fn tiles(self) -> &'static Tiles {
        match self {
            Level::Portable => &portable::TILES,
            #[cfg(target_arch = "x86_64")]
            Level::Amx => &amx::TILES,
        }
    }
}

/// The functions of a level. They may run where the processor has it, on addresses that are valid for what they
/// describe; those of tiles on whole cache lines.
pub(super) struct Tiles {
    /// Called by a thread before its first product, and after its last.
    pub begin: unsafe fn(),
    pub end: unsafe fn(),
    /// `product[m - 1][n - 1]` multiplies `m` tiles with `n`.
    pub product: [[unsafe fn(&Product); 2]; 2],
    pub narrow: unsafe fn(&Narrow),
    /// From `.0`, 32 numbers `a, b` of 16 each, to `.1`, `a0 b0 a1 b1 ...`; `.2` times, from one 32 numbers further on to the next.
    pub weave: unsafe fn(*const u16, *mut u16, usize),
    /// Transposes a tile as a matrix of 16 by 16 pairs.
    pub turn: unsafe fn(*const u16, *mut u16),
    pub finish: unsafe fn(&FinishRun),
}

/// `out[i][j] = sum over taps, steps of a[i] b[j]` for one or two tiles `i` and `j`.
#[repr(C)]
pub(super) struct Product {
    /// The left operand's first tile; bytes to the second one and from one step to the next.
    pub a: *const u16,
    pub a_half: usize,
    pub a_step: usize,
    /// The right operand's.
    pub b: *const u16,
    pub b_half: usize,
    pub b_step: usize,
    /// Bytes from `a` to where each tap's steps begin; those of the right operand follow each other.
    pub taps: *const usize,
    pub tap_count: usize,
    /// Steps of each tap.
    pub steps: usize,
    /// The first tile of sums, behind it the one of the second `j`; bytes to those of the second `i`.
    pub out: *mut f32,
    pub out_half: usize,
    /// Whether to add to what `out` held.
    pub add: usize,
}

/// A run of pixels, or of weights, to be rounded and stored in blocks of channels.
pub(super) struct Narrow {
    /// The first pixel, and elements from one to the next.
    pub src: *const f32,
    pub src_step: usize,
    /// The first pixel's first block, and elements from one pixel and block to the next.
    pub dst: *mut u16,
    pub dst_step: usize,
    pub block_len: usize,
    pub count: usize,
    /// Channels in all, and of a whole block: 16 or 32. A last block that is not whole is filled with zeros.
    pub channels: usize,
    pub block: usize,
}

/// Rows of sums, one pixel each, on the way to the outputs.
pub(super) struct FinishRun {
    /// The first row of a tile of sums, behind which the next tile has further columns.
    pub sums: *const f32,
    pub count: usize,
    /// The first output, and elements from one pixel to the next.
    pub y: *mut f32,
    pub y_step: usize,
    /// Columns: at most two tiles of them.
    pub columns: usize,
    /// What to add, to multiply with then and to add: one number a column each, unless null.
    pub bias: *const f32,
    pub affine: [*const f32; 2],
    /// Whether to add to what `y` held.
    pub add: bool,
    pub relu: bool,
}

/// # Safety
/// The vectors' instructions exist, and what `run` describes is valid.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd>(run: &FinishRun) {
    // SAFETY: this function's contract.
    unsafe {
        let mut column = 0;
        while column < run.columns {
            let mask = S::mask((run.columns - column).min(S::LANES));
            let load = |at: *const f32| S::load_masked(at.add(column), mask);
            let bias = if run.bias.is_null() { S::zero() } else { load(run.bias) };
            let affine = (!run.affine[0].is_null()).then(|| run.affine.map(load));
            let sums = run.sums.add(column / SIDE * TILE_SUMS + column % SIDE);
            for row in 0..run.count {
                let y = run.y.add(row * run.y_step + column);
                let mut v = S::add(S::load(sums.add(row * SIDE)), bias);
                if run.add {
                    v = S::add(v, S::load_masked(y, mask));
                }
                if let Some([factor, addend]) = affine {
                    v = S::fma(v, factor, addend);
                }
                if run.relu {
                    v = S::relu(v);
                }
                S::store_masked(y, mask, v);
            }
            column += S::LANES;
        }
    }
}

/// Memory for numbers of 32 bits, as twice as many of 16.
pub(super) fn halves(memory: &mut [f32]) -> &mut [u16] {
    // SAFETY: the same bytes, borrowed as long; any bits are numbers of either type, and 16 bits need less alignment.
    unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 2 * memory.len()) }
}

/// A tile on whole cache lines.
#[repr(C, align(64))]
pub(super) struct Aligned<T, const LEN: usize>(pub [T; LEN]);
