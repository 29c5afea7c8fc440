//! Softmax and the loss.

use crate::Cuda;
use crate::buffer::{Buffer, Ints};
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::format::Format;
use crate::operand::Run;
use crate::source::Source;
use towers_program::{Error, Labels, Result, View, Xent};

pub(crate) const SOURCE: Source = Source {
    name: "softmax.cu",
    text: include_str!("../../kernels/softmax.cu"),
    kernels: &["softmax", "softmax_f32", "softmax_xent", "sigmoid_xent"],
};

/// Threads of a block: a batch of 256 samples and ten classes needs one.
const BLOCK: u32 = 512;

/// Threads that share a row: enough that each has about eight logits.
fn team(classes: usize) -> u32 {
    classes.div_ceil(8).clamp(1, 32).next_power_of_two() as u32
}

impl Cuda {
    pub(crate) fn op_softmax(&self, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
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
    fn probabilities(&self, op: &'static str, y: View<Buffer>) -> Result<(&'static str, Ptr, u32)> {
        let (format, what) = (y.data.format, "the output");
        if format == Format::F32 && format != self.format() {
            let y = self.place(op, what, y.data, y.layout, Format::F32, true)?;
            return Ok(("softmax_f32", y.ptr, y.stride as u32));
        }
        let y = self.write(op, what, y)?;
        Ok(("softmax", y.ptr, y.stride as u32))
    }

    pub(crate) fn op_cross_entropy(
        &self,
        xent: &Xent,
        logits: View<Buffer>,
        labels: &Ints,
        dlogits: Option<View<Buffer>>,
        metrics: Run,
    ) -> Result<()> {
        let multi_hot = xent.labels == Labels::MultiHot;
        let op = if multi_hot { "sigmoid_xent" } else { "softmax_xent" };
        let shape = logits.layout.shape;
        xent.check(op)?;
        let labels = self.ints(op, "the labels", labels, xent.words(shape.n, shape.c))?;
        let x = self.read(op, "the logits", logits)?;
        let (d, d_stride) = match dlogits {
            None => (Ptr::NULL, 0),
            Some(d) => {
                let d = self.write(op, "dlogits", d)?;
                (d.ptr, d.stride as u32)
            }
        };
        let metrics = self.operand(op, "the metrics", metrics)?;
        let (rows, c) = (shape.n as u32, u32_of(op, "the number of classes", shape.c)?);
        let team = team(shape.c);
        // One at least: an empty batch has a sum too.
        let blocks = (shape.n * team as usize).div_ceil(BLOCK as usize).max(1);
        let partials = self.scratch(blocks * 2 * size_of::<f32>())?;
        let (x_stride, smoothing, scale) = (x.stride as u32, xent.label_smoothing, xent.scale);
        let geometry = Geometry::line(u32_of(op, "the number of blocks", blocks)?, BLOCK);
        let counter = self.counters(op, 1)?;
        if multi_hot {
            let args = args![
                self.step_state(),
                x.ptr,
                x_stride,
                labels,
                d,
                d_stride,
                rows,
                c,
                team,
                smoothing,
                scale,
                partials,
                counter,
                metrics,
            ];
            return self.launch(op, geometry, args);
        }
        let args = args![
            self.step_state(),
            x.ptr,
            x_stride,
            labels,
            u32::from(xent.labels == Labels::Target),
            d,
            d_stride,
            rows,
            c,
            team,
            smoothing,
            scale,
            partials,
            counter,
            metrics,
        ];
        self.launch(op, geometry, args)
    }
}
