//! ReLU with a trained slope for each channel.

use crate::driver::{Geometry, args, u32_of};
use crate::operand::Run;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::{Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "prelu.cu",
    text: include_str!("../../kernels/prelu.cu"),
    kernels: &["prelu", "prelu_input_gradient", "prelu_slope_sums"],
};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Channels that a block of `prelu_slope_sums` adds up.
const LANES: usize = 32;
/// Rows that it adds up, but for the largest tensors.
const ROWS: usize = 256;
/// The most parts of its sums.
const MOST_PARTS: usize = 1024;

impl Cuda {
    pub(crate) fn op_prelu(&self, x: View<Buffer>, slopes: Run, y: View<Buffer>) -> Result<()> {
        let op = "prelu";
        let slopes = self.operand(op, "the slopes", slopes)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if x.shape.is_empty() {
            return Ok(());
        }
        let (rows, c) = (x.rows(), u32_of(op, "the number of channels", x.shape.c)?);
        let arguments = args![x.ptr, x.stride as u32, slopes, y.ptr, y.stride as u32, rows as u64, c];
        self.launch("prelu", Geometry::line(self.blocks(x.shape.len(), BLOCK), BLOCK), arguments)
    }

    pub(crate) fn op_prelu_input_gradient(
        &self,
        x: View<Buffer>,
        slopes: Run,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "prelu_input_gradient";
        let slopes = self.operand(op, "the slopes", slopes)?;
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let (rows, c) = (x.rows(), u32_of(op, "the number of channels", x.shape.c)?);
        let arguments = args![
            x.ptr,
            x.stride as u32,
            slopes,
            dy.ptr,
            dy.stride as u32,
            dx.ptr,
            dx.stride as u32,
            rows as u64,
            c,
            u32::from(write == Write::Add),
        ];
        let geometry = Geometry::line(self.blocks(x.shape.len(), BLOCK), BLOCK);
        self.launch("prelu_input_gradient", geometry, arguments)
    }

    pub(crate) fn op_prelu_slope_gradient(
        &self,
        x: View<Buffer>,
        dy: View<Buffer>,
        dslopes: Run,
    ) -> Result<()> {
        let op = "prelu_slope_gradient";
        let (channels, to) = (dslopes.at.len, self.operand(op, "the gradient of the slopes", dslopes)?);
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        if x.shape.is_empty() {
            // SAFETY: the span of the sums was checked.
            return self.work(|| unsafe { self.driver().clear(to, channels * size_of::<f32>()) });
        }
        let rows = x.rows();
        let each = rows.div_ceil(MOST_PARTS).max(ROWS);
        let parts = rows.div_ceil(each);
        let partial = self.scratch(parts * channels * size_of::<f32>())?;
        let tiles = u32_of(op, "the number of channels", channels.div_ceil(LANES))?;
        let geometry = Geometry { grid: [parts as u32, tiles, 1], block: [BLOCK, 1, 1], shared: 0 };
        let each = u32_of(op, "the number of rows", each)?;
        let arguments = args![
            x.ptr,
            x.stride as u32,
            dy.ptr,
            dy.stride as u32,
            rows as u64,
            channels as u32,
            each,
            partial,
        ];
        self.launch("prelu_slope_sums", geometry, arguments)?;
        self.sum_parts("sum_parts_f32", op, partial, [parts, channels], to, Write::Set)
    }
}
