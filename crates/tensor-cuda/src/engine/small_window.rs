//! Convolutions whose window holds few numbers, as the first layer of a network on pictures: forward, and the
//! gradient of the weights. They need tensor cores, and outputs in packs of 8.

use super::product::{BLOCKS, divisor, in_parts};
use crate::Cuda;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::layer::Pass;
use crate::source::Source;
use towers_program::{Conv2d, Result, Shape, Write};

pub(crate) const SOURCE: Source = Source {
    name: "small_window.cu",
    text: include_str!("../../kernels/small_window.cu"),
    kernels: &["small_window_fwd", "small_window_filter"],
};

/// Threads of a block, the most numbers of a window, and the most outputs of a block of the filter's pass.
const THREADS: u32 = 256;
const WINDOW: usize = 32;
const TILE: usize = 96;
/// Places of pixels and distances from them stay far below the kernels' limits.
const MOST: usize = 1 << 30;
const MOST_SIDE: usize = 1 << 13;

/// A pass and its tiling.
pub(super) struct SmallWindow<'a> {
    conv: &'a Conv2d,
    pass: Pass,
    x: Shape,
    y: Shape,
}

impl<'a> SmallWindow<'a> {
    /// The pass for a convolution from `x` to `y`, if these kernels can compute it.
    pub(super) fn new(
        cuda: &Cuda,
        conv: &'a Conv2d,
        pass: Pass,
        x: Shape,
        y: Shape,
    ) -> Option<SmallWindow<'a>> {
        let [down, across] = conv.kernel;
        let sides = [x.h, x.w, conv.stride[0], conv.stride[1], conv.pad.top, conv.pad.left];
        let fits = cuda.driver().tensor_cores()
            && cuda.format().bytes() == 2
            && pass != Pass::Data
            && down * across * x.c <= WINDOW
            && conv.outputs.is_multiple_of(8)
            && sides.iter().all(|&side| side < MOST_SIDE)
            && x.len().max(y.rows()) < MOST
            && !x.is_empty();
        fits.then_some(SmallWindow { conv, pass, x, y })
    }

    fn window(&self) -> usize {
        self.conv.kernel[0] * self.conv.kernel[1] * self.x.c
    }

    /// Blocks, side by side.
    fn blocks(&self) -> usize {
        let runs = self.y.rows();
        match self.pass {
            Pass::Filter => runs.div_ceil(64).clamp(2, BLOCKS),
            _ => runs.div_ceil(128),
        }
    }

    /// Parts of the result, and the floats of each.
    pub(super) fn partial(&self) -> [usize; 2] {
        match self.pass {
            Pass::Filter => [self.blocks(), self.conv.outputs * self.window()],
            _ => [1, self.y.len()],
        }
    }

    /// `out = ...`, from the input and the weights or, for their gradient, dy.
    pub(super) fn run(&self, cuda: &Cuda, op: &'static str, [x, other, out]: [Ptr; 3]) -> Result<()> {
        let word = |value| u32_of(op, "a size", value);
        let (kernel, tiles) = match self.pass {
            Pass::Filter => ("small_window_filter", self.conv.outputs.div_ceil(TILE)),
            _ => ("small_window_fwd", 1),
        };
        let grid = [word(self.blocks())?, word(tiles)?, 1];
        let geometry = Geometry { grid, block: [THREADS, 1, 1], shared: 0 };
        in_parts(cuda, op, self.partial(), out, Write::Set, |partial| {
            let arguments = args![
                x,
                other,
                out,
                partial,
                word(self.conv.outputs)?,
                word(self.y.rows())?,
                divisor(self.y.h),
                divisor(self.y.w),
                word(self.x.h)?,
                word(self.x.w)?,
                word(self.x.c)?,
                divisor(self.conv.kernel[1] * self.x.c),
                word(self.window())?,
                word(self.conv.stride[0])?,
                word(self.conv.stride[1])?,
                self.conv.pad.top as i32,
                self.conv.pad.left as i32,
            ];
            cuda.launch(kernel, geometry, arguments)
        })
    }
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests {
    use super::super::compared;
    use super::*;
    use towers_program::{Pad, Precision};

    /// Whole and broken tiles of pixels and outputs, strides, padding that differs by side, windows of all
    /// widths.
    #[test]
    fn windows_give_what_products_of_patches_give() {
        for precision in [Precision::Bf16, Precision::Fp16] {
            let cuda = Cuda::emulated(precision).unwrap();
            for (x, outputs, kernel, stride, pad) in [
                (Shape::new(3, 8, 9, 3), 96, [3, 3], [1, 1], [1, 1, 1, 1]),
                (Shape::new(2, 7, 5, 3), 32, [3, 3], [2, 2], [0, 1, 0, 1]),
                (Shape::new(2, 9, 6, 1), 104, [5, 5], [1, 2], [2, 2, 1, 0]),
                (Shape::new(3, 5, 5, 8), 8, [1, 2], [1, 1], [0, 0, 0, 1]),
            ] {
                let [top, bottom, left, right] = pad;
                let pad = Pad { top, bottom, left, right };
                let conv = Conv2d { stride, pad, ..Conv2d::new(x.c, outputs, kernel) };
                for pass in [Pass::Forward, Pass::Filter] {
                    let y = conv.output(x).unwrap();
                    let small = SmallWindow::new(&cuda, &conv, pass, x, y).unwrap();
                    let run = |places| small.run(&cuda, "test", places);
                    compared::agrees(&cuda, &conv, pass, x, "kernels for small windows", run);
                }
            }
        }
    }

    /// Gradients of the input, other windows and other formats are left to other kernels.
    #[test]
    fn others_are_left_to_others() {
        let conv = |inputs, outputs| Conv2d::new(inputs, outputs, [3; 2]);
        let is = |precision, pass, inputs, outputs| {
            let (cuda, conv) = (Cuda::emulated(precision).unwrap(), conv(inputs, outputs));
            let x = Shape::new(2, 5, 5, inputs);
            SmallWindow::new(&cuda, &conv, pass, x, conv.output(x).unwrap()).is_some()
        };
        assert!(is(Precision::Bf16, Pass::Forward, 3, 8) && is(Precision::Fp16, Pass::Filter, 3, 8));
        assert!(!is(Precision::Bf16, Pass::Data, 3, 8) && !is(Precision::Fp32, Pass::Forward, 3, 8));
        assert!(!is(Precision::Bf16, Pass::Forward, 4, 8) && !is(Precision::Bf16, Pass::Filter, 3, 12));
    }
}
