//! A tile is 16 rows of 64 bytes. The left operand of a product has 32 numbers a row. The right one has pairs
//! of consecutive terms of the sum, of 16 columns. Sums are 16 numbers of 32 bits a row.

use crate::element::Bf16;

/// Rows and columns of sums in a tile.
pub(super) const SIDE: usize = 16;

/// Products that one step adds to a sum.
pub(super) const DEPTH: usize = 32;

/// Bytes of a tile and of its rows, its numbers of 16 bits as an operand, and its numbers of 32 bits as sums.
pub(super) const TILE_BYTES: usize = 1024;
pub(super) const ROW_BYTES: usize = TILE_BYTES / SIDE;
pub(super) const TILE_HALVES: usize = TILE_BYTES / 2;
pub(super) const TILE_SUMS: usize = TILE_BYTES / 4;

/// A tile on whole cache lines.
#[repr(C, align(64))]
pub(super) struct Aligned<T, const LEN: usize>(pub [T; LEN]);

/// A tensor's numbers, as they lie in memory.
pub(super) fn bits(tensor: &[Bf16]) -> &[u16] {
    // SAFETY: the same bits, borrowed as long.
    unsafe { core::slice::from_raw_parts(tensor.as_ptr().cast(), tensor.len()) }
}

/// Memory for numbers of 32 bits, as twice as many of 16.
pub(super) fn halves(memory: &mut [f32]) -> &mut [u16] {
    // SAFETY: the same bytes, borrowed as long; any bits are numbers of either type, and 16 bits need less
    // alignment.
    unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 2 * memory.len()) }
}

/// Memory for numbers of 32 bits, which begins on a cache line, as offsets.
pub(super) fn offsets(memory: &mut [f32]) -> &mut [usize] {
    assert!(memory.as_ptr().cast::<usize>().is_aligned(), "offsets on a cache line");
    let len = size_of_val(memory) / size_of::<usize>();
    // SAFETY: the same bytes, borrowed as long, aligned by the check above; any bits are numbers of either
    // type.
    unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), len) }
}
