//! Convolutions as matrix products, and sums in parts.

use crate::Cuda;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::layer::Pass;
use crate::source::Source;
use towers_program::{Conv2d, Error, Pad, Result, Shape, Write};

pub(crate) const SOURCE: Source = Source {
    name: "convolution.cu",
    text: include_str!("../../kernels/convolution.cu"),
    kernels: &[
        "conv_fwd",
        "conv_fwd_single",
        "conv_bwd_data",
        "conv_bwd_data_single",
        "conv_bwd_filter",
        "conv_bwd_filter_image",
        "conv_bwd_filter_single",
    ],
};

/// Threads of a block and the tile that they compute, in product.cuh; a step along k takes 64 bytes.
const THREADS: u32 = 256;
const TILE: [usize; 2] = [128, 64];
const STEP_BYTES: usize = 64;
/// This many blocks fill a large GPU. A product of fewer tiles is cut along k, depending on its sizes alone.
pub(super) const BLOCKS: usize = 256;
/// Steps that a block should have to do, at least.
const LEAST_STEPS: usize = 4;
/// The limit of all counts: sizes and places of pixels stay far below 32 bits.
const MOST: usize = 1 << 30;

/// One pass as a matrix product: `out[m, n]` is a sum over `k`.
pub(super) struct Product<'a> {
    kernel: &'static str,
    conv: &'a Conv2d,
    /// The tensor whose pixels the window moves over, and the tensor under the window.
    grid: Shape,
    image: Shape,
    /// Channels of the other tensor.
    others: usize,
    sizes: [usize; 3],
}

impl<'a> Product<'a> {
    pub(super) fn new(cuda: &Cuda, conv: &'a Conv2d, pass: Pass, x: Shape, y: Shape) -> Product<'a> {
        let (grid, image) = if pass == Pass::Data { (x, y) } else { (y, x) };
        let taps = conv.kernel[0] * conv.kernel[1];
        let (rows, columns, others) = (grid.rows(), taps * image.c, conv.inputs + conv.outputs - image.c);
        let pack = 16 / cuda.format().bytes();
        let wide = [image.c, others].map(|channels| channels.is_multiple_of(pack));
        let (kernel, sizes) = match (pass, wide) {
            (Pass::Forward, [true, _]) => ("conv_fwd", [rows, others, columns]),
            (Pass::Forward, _) => ("conv_fwd_single", [rows, others, columns]),
            (Pass::Data, [true, true]) => ("conv_bwd_data", [rows, others, columns]),
            (Pass::Data, _) => ("conv_bwd_data_single", [rows, others, columns]),
            (Pass::Filter, [true, true]) => ("conv_bwd_filter", [columns, others, rows]),
            (Pass::Filter, [_, true]) => ("conv_bwd_filter_image", [columns, others, rows]),
            (Pass::Filter, _) => ("conv_bwd_filter_single", [columns, others, rows]),
        };
        Product { kernel, conv, grid, image, others, sizes }
    }

    /// Parts of `k`, and the steps of each.
    fn parts(&self, cuda: &Cuda) -> [usize; 2] {
        let [m, n, k] = self.sizes;
        let steps = k.div_ceil(STEP_BYTES / cuda.format().bytes());
        parts(m.div_ceil(TILE[0]) * n.div_ceil(TILE[1]), steps, LEAST_STEPS)
    }

    /// Parts of the result, and the floats of each.
    pub(super) fn partial(&self, cuda: &Cuda) -> [usize; 2] {
        [self.parts(cuda)[0], self.sizes[0] * self.sizes[1]]
    }

    /// `out = ...` or `out += ...`, from the tensor under the window and the other operand.
    pub(super) fn run(
        &self,
        cuda: &Cuda,
        op: &'static str,
        [image, other, out]: [Ptr; 3],
        write: Write,
    ) -> Result<()> {
        let [m, n, _] = self.sizes;
        let Pad { top, bottom, left, right } = self.conv.pad;
        let padded = [self.image.h + top + bottom, self.image.w + left + right, self.grid.h, self.grid.w];
        let pixels = [self.grid.rows(), self.image.rows()];
        if let Some(value) = self.sizes.into_iter().chain(padded).chain(pixels).find(|&size| size >= MOST) {
            let (what, accepted) = ("a size or the number of pixels", "below 2^30");
            return Err(Error::Value { op, what, value: value as f64, accepted });
        }
        let [parts, steps] = self.parts(cuda);
        let word = |value| u32_of(op, "a size", value);
        let [[kernel_h, kernel_w], [stride_h, stride_w]] = [self.conv.kernel, self.conv.stride];
        let add = u32::from(write == Write::Add);
        let grid = [word(m.div_ceil(TILE[0]))?, word(n.div_ceil(TILE[1]))?, word(parts)?];
        let geometry = Geometry { grid, block: [THREADS, 1, 1], shared: 0 };
        in_parts(cuda, op, self.partial(cuda), out, write, |partial| {
            let arguments = args![
                image,
                other,
                out,
                partial,
                word(steps)?,
                add,
                word(self.grid.rows())?,
                word(kernel_h * kernel_w * self.image.c)?,
                word(self.others)?,
                divisor(self.grid.h),
                divisor(self.grid.w),
                divisor(self.image.c),
                divisor(kernel_w),
                word(self.image.h)?,
                word(self.image.w)?,
                word(stride_h)?,
                word(stride_w)?,
                top as i32,
                left as i32,
            ];
            cuda.launch(self.kernel, geometry, arguments)
        })
    }
}

/// The number of parts of some steps that fill a large GPU with tiles, and the steps of each: at least
/// `least`, if there are as many.
pub(super) fn parts(tiles: usize, steps: usize, least: usize) -> [usize; 2] {
    let wanted = (BLOCKS / tiles.max(1)).min(steps / least).max(1);
    let each = steps.div_ceil(wanted).max(1);
    [steps.div_ceil(each), each]
}

/// Bytes of scratch memory for this number of parts of a result of `size` floats. A single part needs none.
pub(super) fn partial_bytes([parts, size]: [usize; 2]) -> usize {
    if parts > 1 { parts * size * size_of::<f32>() } else { 0 }
}

/// `out = ...` or `out += ...`, by a kernel that writes this number of parts of `size` floats to the place
/// that `launch` gets, and their sum. A single part is written to `out`, and `launch` gets no place.
pub(super) fn in_parts(
    cuda: &Cuda,
    op: &'static str,
    [parts, size]: [usize; 2],
    out: Ptr,
    write: Write,
    launch: impl FnOnce(Ptr) -> Result<()>,
) -> Result<()> {
    if parts == 1 {
        return launch(Ptr::NULL);
    }
    let partial = cuda.engine_scratch(partial_bytes([parts, size]))?;
    launch(partial)?;
    cuda.sum_parts("sum_parts", op, partial, [parts, size], out, write)
}

/// The divisor below 2^30 for `struct Divisor` in divisor.cuh.
pub(crate) fn divisor(by: usize) -> u64 {
    let by = by.max(1) as u64;
    let shift = 31 + by.next_power_of_two().ilog2();
    by | ((1_u64 << shift).div_ceil(by) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quotient as the kernels compute it.
    fn quotient(n: u64, packed: u64) -> u64 {
        let (by, magic) = (packed as u32, packed >> 32);
        let shift = 63 - (by - 1).leading_zeros();
        (n * magic) >> shift
    }

    #[test]
    fn quotients_without_a_division() {
        let most = (1 << 31) - 1;
        for by in (1..300).chain([1023, 1024, 1025, 65_535, 65_537, (1 << 29) + 1, (1 << 30) - 1]) {
            let packed = divisor(by);
            let by = by as u64;
            let multiples = [1, 2, 3, 1000, most / by].map(|times| (by * times).min(most));
            for n in multiples.into_iter().flat_map(|n| [n - 1, n, (n + 1).min(most)]).chain([0, most]) {
                assert_eq!(quotient(n, packed), n / by, "{n} / {by}");
            }
        }
        assert_eq!(divisor(0), divisor(1));
    }
}
