//! Convolutions with groups or dilation, by plain sums: every pass, and no tensor cores. cuDNN is asked first.

use super::product::{divisor, in_parts, parts};
use crate::Cuda;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::layer::Pass;
use crate::source::Source;
use towers_program::{Conv2d, Error, Result, Shape, Write};

pub(crate) const SOURCE: Source = Source {
    name: "grouped.cu",
    text: include_str!("../../kernels/grouped.cu"),
    kernels: &["grouped_fwd", "grouped_bwd_data", "grouped_bwd_filter"],
};

/// Channels and pixels of a block.
const ACROSS: usize = 32;
const LINES: usize = 8;
/// Pixels of a part of a gradient of weights, at least: a line's sums stay exact enough.
const STEP: usize = 16 * LINES;
/// The limit of all counts: sizes and places of pixels stay far below 32 bits.
const MOST: usize = 1 << 30;

/// A pass.
pub(super) struct Grouped<'a> {
    conv: &'a Conv2d,
    pass: Pass,
    x: Shape,
    y: Shape,
}

impl<'a> Grouped<'a> {
    /// The pass, if other kernels can't compute it.
    pub(super) fn new(conv: &'a Conv2d, pass: Pass, x: Shape, y: Shape) -> Option<Grouped<'a>> {
        let is_dense = conv.groups == 1 && conv.extent() == conv.kernel;
        (!is_dense).then_some(Grouped { conv, pass, x, y })
    }

    /// Taps and input channels of a group.
    fn columns(&self) -> usize {
        self.conv.kernel[0] * self.conv.kernel[1] * self.conv.group_inputs()
    }

    /// Parts of the pixels, and the pixels of each.
    fn parts(&self) -> [usize; 2] {
        let steps = self.y.rows().div_ceil(STEP);
        match self.pass {
            Pass::Filter => {
                let [parts, steps] = parts(self.columns() * self.y.c.div_ceil(ACROSS), steps, 1);
                [parts, steps * STEP]
            }
            Pass::Forward | Pass::Data => [1, 0],
        }
    }

    /// Parts of the result, and the floats of each.
    pub(super) fn partial(&self) -> [usize; 2] {
        [self.parts()[0], self.conv.weights()]
    }

    /// `out = ...`, or for the gradient of the input `out += ...`, from both operands.
    pub(super) fn run(
        &self,
        cuda: &Cuda,
        op: &'static str,
        [a, b, out]: [Ptr; 3],
        write: Write,
    ) -> Result<()> {
        let (conv, x, y) = (self.conv, self.x, self.y);
        let (grid, image) = if self.pass == Pass::Data { (x, y) } else { (y, x) };
        let [down, across] = conv.extent();
        let sizes = [x.h + conv.pad.top + down, x.w + conv.pad.left + across, y.h, y.w, x.c, y.c];
        let counts = [x.rows(), y.rows(), self.columns()];
        let strides = conv.stride.into_iter().chain(conv.dilation);
        if let Some(value) = sizes.into_iter().chain(counts).chain(strides).find(|&size| size >= MOST) {
            let (what, accepted) = ("a size or the number of pixels", "below 2^30");
            return Err(Error::Value { op, what, value: value as f64, accepted });
        }
        let word = |value| u32_of(op, "a size", value);
        let [count, each] = self.parts();
        let (kernel, blocks) = match self.pass {
            Pass::Forward => ("grouped_fwd", [y.rows().div_ceil(LINES), y.c.div_ceil(ACROSS), 1]),
            Pass::Data => ("grouped_bwd_data", [x.rows().div_ceil(LINES), x.c.div_ceil(ACROSS), 1]),
            Pass::Filter => ("grouped_bwd_filter", [self.columns(), y.c.div_ceil(ACROSS), count]),
        };
        let [blocks_x, blocks_y, blocks_z] = blocks;
        let geometry = Geometry {
            grid: [word(blocks_x)?, word(blocks_y)?, word(blocks_z)?],
            block: [ACROSS as u32, LINES as u32, 1],
            shared: 0,
        };
        // A gradient of weights is set.
        let add = u32::from(write == Write::Add);
        in_parts(cuda, op, self.partial(), out, Write::Set, |partial| {
            let arguments = args![
                a,
                b,
                out,
                partial,
                word(each)?,
                add,
                divisor(grid.h),
                divisor(grid.w),
                word(grid.rows())?,
                word(image.h)?,
                word(image.w)?,
                word(conv.kernel[0])?,
                word(conv.kernel[1])?,
                word(conv.stride[0])?,
                word(conv.stride[1])?,
                word(conv.dilation[0])?,
                word(conv.dilation[1])?,
                conv.pad.top as i32,
                conv.pad.left as i32,
                word(conv.inputs)?,
                word(conv.outputs)?,
                divisor(conv.group_inputs()),
                divisor(conv.outputs / conv.groups.max(1)),
            ];
            cuda.launch(kernel, geometry, arguments)
        })
    }
}
