//! The table of functions that a level of the processor has for tiles, and what they are told.

use super::patch::Patch;
use crate::element::Bf16;
use core::ops::Range;

/// The functions of a level. They may run where the processor has it, on addresses that are valid for what they
/// describe; those of tiles on whole cache lines.
pub(super) struct Tiles {
    /// Called by a thread before its first product, and after its last.
    pub begin: unsafe fn(),
    pub end: unsafe fn(),
    /// `product[m - 1][n - 1]` multiplies `m` tiles with `n`.
    pub product: [[unsafe fn(&Product); 2]; 2],
    /// Lays out the pixels of a line: as they are, each with 32 channels.
    pub spread: unsafe fn(&Walk, *mut u16),
    /// As pairs of neighbours with 16 channels each, `a0 b0 a1 b1 ...`.
    pub pair: unsafe fn(&Walk, &Pairs),
    /// As tiles of 16 channels by 32 pixels; elements from those of the first channels to those of the others.
    pub columns: unsafe fn(&Walk, *mut u16, usize),
    pub narrow: unsafe fn(&Narrow),
    /// Of a tile, rows of 16 numbers `a` and `b` each to rows `a0 b0 a1 b1 ...`.
    pub weave: unsafe fn(*const u16, *mut u16),
    /// Transposes a tile as a matrix of 16 by 16 pairs.
    pub turn: unsafe fn(*const u16, *mut u16),
    pub finish: unsafe fn(&FinishRun),
}

/// `out[i][j] = sum over taps, steps of a[i] b[j]` for one or two tiles `i` and `j`.
#[repr(C)]
pub(super) struct Product {
    /// The left operand's first tile; bytes from one of its rows to the next, to the second tile and from one step to the next.
    pub a: *const u16,
    pub a_row: usize,
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
    /// The first tile of sums, followed by that of the second `j`; bytes to those of the second `i`.
    pub out: *mut f32,
    pub out_half: usize,
    /// Whether to add to what `out` held.
    pub add: usize,
}

/// Some channels of some images, to be laid out as one line of pixels, row by row, with zeros around them.
#[derive(Debug)]
pub(super) struct Walk {
    /// The first pixel that exists; elements from one image, row and pixel to the next.
    pub src: *const Bf16,
    pub steps: [usize; 3],
    pub images: usize,
    /// Rows of an image in the line, and pixels of a row; those of them that exist.
    pub slots: [usize; 2],
    pub inside: [Range<usize>; 2],
    /// At most two tiles of them.
    pub channels: usize,
    /// Pixels of the line, at least those of the images: a multiple of 32 for columns, an even number for pairs.
    pub len: usize,
    /// Where each slot is an output that reads a patch: of what, and which output the first one is. Then `src` is where the first
    /// image begins, and all slots exist.
    pub patch: Option<(Patch, [usize; 2])>,
}

/// Where pairs of pixels go.
pub(super) struct Pairs {
    /// The first one; elements to the first one of the other 16 channels.
    pub dst: *mut u16,
    pub tile_len: usize,
    /// Pairings: of each pixel of even place with the next one, and of those of odd place with theirs; elements from the former
    /// to the latter.
    pub pairings: usize,
    pub pairing_len: usize,
}

impl Walk {
    /// Calls `emit` with the channels of each pixel of the line. `load` reads numbers by a mask, the others being 0, and `join`s
    /// those of two masks.
    ///
    /// # Safety
    /// `load` may read the channels of every pixel that exists.
    #[inline(always)]
    pub unsafe fn each_pixel<V: Copy>(
        &self,
        zero: V,
        load: impl Fn(*const Bf16, u32) -> V,
        join: impl Fn(V, V) -> V,
        mut emit: impl FnMut(V),
    ) {
        let mask = ((1u64 << self.channels) - 1) as u32;
        let [height, width] = self.slots;
        let [rows, pixels] = &self.inside;
        let [image_step, row_step, pixel_step] = self.steps;
        for (image, row) in (0..self.images).flat_map(|image| (0..height).map(move |row| (image, row))) {
            let image = self.src.wrapping_add(image * image_step);
            if let Some((patch, first)) = &self.patch {
                for pixel in 0..width {
                    let rows = patch.rows(image, [first[0] + row, first[1] + pixel]);
                    emit(rows.fold(zero, |sum, (at, mask)| join(sum, load(at, mask))));
                }
                continue;
            }
            let pixels = if rows.contains(&row) { pixels.clone() } else { width..width };
            (0..pixels.start).for_each(|_| emit(zero));
            for pixel in pixels.clone() {
                let at = (row - rows.start) * row_step + (pixel - pixels.start) * pixel_step;
                emit(load(image.wrapping_add(at), mask));
            }
            (pixels.end..width).for_each(|_| emit(zero));
        }
        (self.images * height * width..self.len).for_each(|_| emit(zero));
    }
}

/// A run of weights to be rounded, in rows of 16 or 32 with zeros at their end.
pub(super) struct Narrow {
    /// The first row, and elements from one to the next.
    pub src: *const f32,
    pub src_step: usize,
    pub dst: *mut u16,
    pub count: usize,
    /// Numbers of a row, before and after.
    pub len: usize,
    pub row: usize,
}

/// Rows of sums, one pixel each, on the way to the outputs.
pub(super) struct FinishRun {
    /// The first row of a tile of sums, behind which the next tile has further columns.
    pub sums: *const f32,
    pub count: usize,
    /// The first output, and elements from one pixel to the next.
    pub y: *mut Bf16,
    pub y_step: usize,
    /// Columns: at most two tiles of them.
    pub columns: usize,
    /// What to add, to multiply with then and to add: one number a column each, unless null.
    pub bias: *const f32,
    pub affine: [*const f32; 2],
    /// Whether to add to what `y` held.
    pub add: bool,
    pub relu: Option<f32>,
}
