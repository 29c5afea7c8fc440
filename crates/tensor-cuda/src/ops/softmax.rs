//! Softmax and the loss.

use crate::buffer::Format;
use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use crate::operand::u32_of;
use crate::{Buffer, Cuda, Ints};
use tensor_backend::{Error, Layout, Result, SoftmaxXent, Span, View, ViewMut};

pub(crate) const SOURCE: Source = Source {
    name: "softmax.cu",
    text: include_str!("../../kernels/softmax.cu"),
    kernels: &["softmax", "softmax_f32", "softmax_xent", "sum_pairs"],
};

/// Threads of a block: those of a batch of 256 samples and ten classes, whose loss then takes one launch.
const BLOCK: u32 = 512;

/// Threads that share a row: enough that each has about eight logits.
fn team(classes: usize) -> u32 {
    classes.div_ceil(8).clamp(1, 32).next_power_of_two() as u32
}

impl Cuda {
    pub(crate) fn op_softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "softmax";
        Error::check_shape(op, "the output", y.layout.shape, x.layout.shape)?;
        let x = self.read(op, "the input", x)?;
        let (kernel, y, y_stride) = self.probabilities(op, y)?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let (rows, c) = (x.rows() as u32, u32_of(op, "the number of channels", x.shape.c)?);
        let team = team(x.shape.c);
        let geometry = Geometry::line(self.blocks(x.rows() * team as usize, BLOCK), BLOCK);
        self.launch(kernel, geometry, args![x.ptr, x.stride as u32, y, y_stride, rows, c, team])
    }

    /// Probabilities may be written in the format of activations, or as f32: the kernel, the first element, the stride.
    fn probabilities(&self, op: &'static str, y: ViewMut<Buffer>) -> Result<(&'static str, Ptr, u32)> {
        if y.data.format != Format::F32 || self.format() == Format::F32 {
            let y = self.write(op, "the output", y)?;
            return Ok(("softmax", y.ptr, y.stride as u32));
        }
        let Layout { offset, stride, .. } = y.layout;
        y.layout.check(op, "the output", y.data.len())?;
        let ptr = y.data.memory.ptr().offset(offset * Format::F32.bytes());
        Ok(("softmax_f32", ptr, u32_of(op, "the stride", stride)?))
    }

    pub(crate) fn op_softmax_xent(
        &self,
        xent: &SoftmaxXent,
        logits: View<Buffer>,
        labels: &Ints,
        dlogits: Option<ViewMut<Buffer>>,
        sums: &mut Buffer,
        metrics: Span,
    ) -> Result<()> {
        let op = "softmax_xent";
        let shape = logits.layout.shape;
        xent.check(op)?;
        Error::check_shape(op, "the logits", shape, shape.flatten())?;
        Error::check_len(op, "the metrics", metrics, 2)?;
        let labels = self.ints(op, "the labels", labels, shape.n)?;
        let x = self.read(op, "the logits", logits)?;
        let (d, d_stride) = match dlogits {
            None => (Ptr::NULL, 0),
            Some(d) => {
                Error::check_shape(op, "dlogits", d.layout.shape, shape)?;
                let d = self.write(op, "dlogits", d)?;
                (d.ptr, d.stride as u32)
            }
        };
        let metrics = self.run(op, "the metrics", sums, metrics)?;
        let (rows, c) = (shape.n as u32, u32_of(op, "the number of classes", shape.c)?);
        let team = team(shape.c);
        // An empty batch has a sum too.
        let blocks = u32_of(op, "the number of blocks", (shape.n * team as usize).div_ceil(BLOCK as usize))?.max(1);
        let partial = if blocks == 1 { metrics } else { self.scratch(blocks as usize * 2 * size_of::<f32>())? };
        let (x_stride, smoothing, scale) = (x.stride as u32, xent.label_smoothing, xent.scale);
        self.launch(
            "softmax_xent",
            Geometry::line(blocks, BLOCK),
            args![self.turn(), x.ptr, x_stride, labels, d, d_stride, rows, c, team, smoothing, scale, partial],
        )?;
        if blocks == 1 {
            return Ok(());
        }
        self.launch("sum_pairs", Geometry::line(1, BLOCK), args![partial, blocks, metrics])
    }
}
