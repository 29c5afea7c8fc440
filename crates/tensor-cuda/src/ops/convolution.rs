//! Convolutions and dense layers: operands prepared for an engine, bias, activation and the gradients of
//! biases.

use crate::compute_copies::Weight;
use crate::driver::Ptr;
use crate::layer::{Layer, Pass};
use crate::operand::Run;
use crate::place::Place;
use crate::{Buffer, Cuda};
use towers_program::{Activation, BatchNorm, Conv2d, Result, Shape, Span, View, Write};

/// The alignment that engines rely on.
const ALIGNMENT: usize = 16;

/// A layer's weights, at this run of the parameters.
fn weight(layer: Layer, span: Span) -> Weight {
    let conv = layer.conv();
    let Conv2d { outputs, kernel: [down, across], .. } = conv;
    Weight { span, inputs: down * across * conv.group_inputs(), outputs }
}

/// The weights of a convolution or a dense layer, and the bias if it has one; or their gradients.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) w: Run<'a>,
    pub(crate) b: Option<Run<'a>>,
}

impl Cuda {
    pub(crate) fn op_prepare(&self, layer: Layer, x: Shape, training: bool) -> Result<()> {
        let y = layer.conv().output(x)?;
        self.prepare_column_sums(y, training)?;
        if x.is_empty() || y.is_empty() {
            return Ok(());
        }
        self.inner.engine.prepare(self, layer, x, training)
    }

    pub(crate) fn op_forward(
        &self,
        layer: Layer,
        act: Activation,
        x: View<Buffer>,
        weights: Weights,
        y: View<Buffer>,
    ) -> Result<()> {
        let op = layer.op(Pass::Forward);
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        self.forward(op, layer, act, &x, weights, &y)
    }

    /// The convolution, then one pass over its output, which adds the bias and normalizes.
    pub(crate) fn op_conv2d_bn_act_fwd_infer(
        &self,
        conv: &Conv2d,
        bn: &BatchNorm,
        x: View<Buffer>,
        Weights { w, b }: Weights,
        norm: [Run; 4],
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "conv2d_bn_act_fwd_infer";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        self.forward(op, Layer::Conv(conv), Activation::None, &x, Weights { w, b: None }, &y)?;
        self.normalize_infer(op, bn, &y, b, norm, &y)
    }

    pub(crate) fn op_finish_grads(&self, grads: &mut Buffer, at: Span) -> Result<()> {
        at.check("finish_grads", "the run", grads.len())?;
        self.finish_compute_grads(grads, at)
    }

    /// `y = act(x w + b)`.
    fn forward(
        &self,
        op: &'static str,
        layer: Layer,
        act: Activation,
        x: &Place,
        Weights { w: run, b }: Weights,
        y: &Place,
    ) -> Result<()> {
        self.operand(op, "the weights", run)?;
        let bias = b.map(|b| self.operand(op, "the bias", b)).transpose()?;
        if y.shape.is_empty() {
            return Ok(());
        }
        let [ready, whole] = self.stand_ins([x, y])?;
        if x.shape.is_empty() {
            self.clear(&whole)?;
        } else {
            self.pack(op, x, &ready)?;
            let w = self.compute_weight(op, run.data, weight(layer, run.at))?;
            self.inner.engine.run(self, layer, Pass::Forward, &ready, w, &whole, Write::Set)?;
        }
        if bias.is_none() && act == Activation::None && whole.ptr == y.ptr {
            return Ok(());
        }
        self.move_rows(op, &whole, bias.unwrap_or(Ptr::NULL), act, y, Write::Set)
    }

    /// `dx = dy w^T`, set or added.
    pub(crate) fn op_input_gradient(
        &self,
        layer: Layer,
        dy: View<Buffer>,
        run: Run,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = layer.op(Pass::Data);
        let (dy, dx) = (&self.read(op, "dy", dy)?, &self.write(op, "dx", dx)?);
        self.operand(op, "the weights", run)?;
        if dx.shape.is_empty() || (dy.shape.is_empty() && write == Write::Add) {
            return Ok(());
        }
        let [ready, whole] = self.stand_ins([dy, dx])?;
        let direct = whole.ptr == dx.ptr;
        if dy.shape.is_empty() {
            self.clear(&whole)?;
        } else {
            self.pack(op, dy, &ready)?;
            let write = if direct { write } else { Write::Set };
            let w = self.compute_weight(op, run.data, weight(layer, run.at))?;
            self.inner.engine.run(self, layer, Pass::Data, &whole, w, &ready, write)?;
        }
        if direct { Ok(()) } else { self.move_rows(op, &whole, Ptr::NULL, Activation::None, dx, write) }
    }

    /// `dw = x^T dy`, and `db` = the column sums of dy.
    pub(crate) fn op_weight_gradient(
        &self,
        layer: Layer,
        x: View<Buffer>,
        dy: View<Buffer>,
        Weights { w: grads, b }: Weights,
    ) -> Result<()> {
        let op = layer.op(Pass::Filter);
        let (x, dy) = (&self.read(op, "the input", x)?, &self.read(op, "dy", dy)?);
        self.operand(op, "dw", grads)?;
        let sums = b.map(|db| self.operand(op, "db", db)).transpose()?;
        if grads.at.len > 0 {
            let dw = self.compute_grad(op, grads.data, weight(layer, grads.at))?;
            if x.shape.is_empty() || dy.shape.is_empty() {
                // SAFETY: the compute copy holds this many.
                self.work(|| unsafe { self.driver().clear(dw, grads.at.len * self.format().bytes()) })?;
            } else {
                let [ready_x, ready_dy] = self.stand_ins([x, dy])?;
                self.pack(op, x, &ready_x)?;
                self.pack(op, dy, &ready_dy)?;
                self.inner.engine.run(self, layer, Pass::Filter, &ready_x, dw, &ready_dy, Write::Set)?;
            }
        }
        sums.map_or(Ok(()), |sums| self.column_sums(op, dy, sums))
    }

    /// The operands for an engine: the tensors themselves if their pixels lie back to back, else copies in
    /// scratch memory.
    fn stand_ins(&self, tensors: [&Place; 2]) -> Result<[Place; 2]> {
        let fits = |x: &Place| x.is_contiguous() && x.ptr.0.is_multiple_of(ALIGNMENT as u64);
        let bytes = tensors.map(|x| if fits(x) { 0 } else { reserved(x, self.format().bytes()) });
        let total = bytes[0].saturating_add(bytes[1]);
        if total == 0 {
            return Ok(tensors.map(|&x| x));
        }
        let first = self.scratch(total)?;
        let stand_in = |x: &Place, ptr, bytes: usize| match bytes {
            0 => *x,
            _ => Place { ptr, shape: x.shape, stride: x.shape.c },
        };
        let second = first.offset(bytes[0]);
        Ok([stand_in(tensors[0], first, bytes[0]), stand_in(tensors[1], second, bytes[1])])
    }

    /// Copies a tensor to its contiguous copy, if that is another.
    fn pack(&self, op: &'static str, x: &Place, ready: &Place) -> Result<()> {
        if ready.ptr == x.ptr {
            return Ok(());
        }
        self.move_rows(op, x, Ptr::NULL, Activation::None, ready, Write::Set)
    }

    /// Zeros in a tensor without gaps.
    fn clear(&self, x: &Place) -> Result<()> {
        // SAFETY: a place lies inside its buffer, or was reserved in scratch memory.
        self.work(|| unsafe { self.driver().clear(x.ptr, x.shape.len() * self.format().bytes()) })
    }
}

/// Bytes of a copy, rounded up so that the next one is aligned as an allocation is.
fn reserved(x: &Place, element: usize) -> usize {
    x.shape.len().saturating_mul(element).div_ceil(256).saturating_mul(256)
}
