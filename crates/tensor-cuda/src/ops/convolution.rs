//! Convolutions and dense layers: operands prepared for an engine, bias, activation and the gradients of
//! biases.

use crate::compute_copies::Weight;
use crate::driver::Ptr;
use crate::operand::Run;
use crate::place::Place;
use crate::{Buffer, Cuda};
use program::{Activation, BatchNorm, Conv2d, Linear, Result, Shape, Span, View, Write};

/// The alignment that engines rely on.
const ALIGNMENT: usize = 16;

fn of_conv(conv: &Conv2d, span: Span) -> Weight {
    Weight { span, inputs: conv.kernel[0] * conv.kernel[1] * conv.inputs, outputs: conv.outputs }
}

fn of_linear(linear: &Linear, span: Span) -> Weight {
    Weight { span, inputs: linear.inputs, outputs: linear.outputs }
}

/// The weights of a convolution or a dense layer, and the bias if it has one; or their gradients.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) w: Run<'a>,
    pub(crate) b: Option<Run<'a>>,
}

impl Cuda {
    pub(crate) fn op_prepare_conv2d(&self, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        let y = conv.output(x)?;
        self.prepare_column_sums(y, training)?;
        if x.is_empty() || y.is_empty() {
            return Ok(());
        }
        self.inner.engine.prepare_conv(self, conv, x, training)
    }

    pub(crate) fn op_prepare_linear(&self, linear: &Linear, n: usize, training: bool) -> Result<()> {
        self.prepare_column_sums(Shape::vectors(n, linear.outputs), training)?;
        self.inner.engine.prepare_linear(self, linear, n, training)
    }

    pub(crate) fn op_conv2d_fwd(
        &self,
        conv: &Conv2d,
        act: Activation,
        x: View<Buffer>,
        weights: Weights,
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "conv2d_fwd";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let engine = &self.inner.engine;
        self.forward(op, act, &x, weights, of_conv(conv, weights.w.at), &y, |x, w, y| {
            engine.conv_fwd(self, conv, x, w, y)
        })
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
        let engine = &self.inner.engine;
        let unbiased = Weights { w, b: None };
        self.forward(op, Activation::None, &x, unbiased, of_conv(conv, w.at), &y, |x, w, y| {
            engine.conv_fwd(self, conv, x, w, y)
        })?;
        self.normalize_infer(op, bn, &y, b, norm, &y)
    }

    pub(crate) fn op_linear_fwd(
        &self,
        linear: &Linear,
        act: Activation,
        x: View<Buffer>,
        weights: Weights,
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "linear_fwd";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let engine = &self.inner.engine;
        self.forward(op, act, &x, weights, of_linear(linear, weights.w.at), &y, |x, w, y| {
            engine.linear_fwd(self, linear, x, w, y)
        })
    }

    pub(crate) fn op_conv2d_bwd_data(
        &self,
        conv: &Conv2d,
        dy: View<Buffer>,
        w: Run,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "conv2d_bwd_data";
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        let engine = &self.inner.engine;
        self.backward_data(op, &dy, w, of_conv(conv, w.at), &dx, write, |dy, w, dx, write| {
            engine.conv_bwd_data(self, conv, dy, w, dx, write)
        })
    }

    pub(crate) fn op_linear_bwd_data(
        &self,
        linear: &Linear,
        dy: View<Buffer>,
        w: Run,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "linear_bwd_data";
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        let engine = &self.inner.engine;
        self.backward_data(op, &dy, w, of_linear(linear, w.at), &dx, write, |dy, w, dx, write| {
            engine.linear_bwd_data(self, linear, dy, w, dx, write)
        })
    }

    pub(crate) fn op_conv2d_bwd_filter(
        &self,
        conv: &Conv2d,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: Weights,
    ) -> Result<()> {
        let op = "conv2d_bwd_filter";
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let engine = &self.inner.engine;
        self.backward_filter(op, &x, &dy, grads, of_conv(conv, grads.w.at), |x, dy, dw| {
            engine.conv_bwd_filter(self, conv, x, dy, dw)
        })
    }

    pub(crate) fn op_linear_bwd_filter(
        &self,
        linear: &Linear,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: Weights,
    ) -> Result<()> {
        let op = "linear_bwd_filter";
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let engine = &self.inner.engine;
        self.backward_filter(op, &x, &dy, grads, of_linear(linear, grads.w.at), |x, dy, dw| {
            engine.linear_bwd_filter(self, linear, x, dy, dw)
        })
    }

    pub(crate) fn op_finish_grads(&self, grads: &mut Buffer, at: Span) -> Result<()> {
        at.check("finish_grads", "the run", grads.len())?;
        self.finish_compute_grads(grads, at)
    }

    /// `y = act(x w + b)` by an engine's product of x, w and y.
    fn forward(
        &self,
        op: &'static str,
        act: Activation,
        x: &Place,
        Weights { w: run, b }: Weights,
        w: Weight,
        y: &Place,
        product: impl FnOnce(&Place, Ptr, &Place) -> Result<()>,
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
            product(&ready, self.compute_weight(op, run.data, w)?, &whole)?;
        }
        if bias.is_none() && act == Activation::None && whole.ptr == y.ptr {
            return Ok(());
        }
        self.move_rows(op, &whole, bias.unwrap_or(Ptr::NULL), act, y, Write::Set)
    }

    /// `dx = dy w^T`, set or added, by an engine's product of dy, w and dx.
    fn backward_data(
        &self,
        op: &'static str,
        dy: &Place,
        run: Run,
        w: Weight,
        dx: &Place,
        write: Write,
        product: impl FnOnce(&Place, Ptr, &Place, Write) -> Result<()>,
    ) -> Result<()> {
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
            product(&ready, self.compute_weight(op, run.data, w)?, &whole, write)?;
        }
        if direct { Ok(()) } else { self.move_rows(op, &whole, Ptr::NULL, Activation::None, dx, write) }
    }

    /// `dw = x^T dy` by an engine's product of x, dy and dw, and `db` = the column sums of dy.
    fn backward_filter(
        &self,
        op: &'static str,
        x: &Place,
        dy: &Place,
        Weights { w: grads, b }: Weights,
        dw: Weight,
        product: impl FnOnce(&Place, &Place, Ptr) -> Result<()>,
    ) -> Result<()> {
        self.operand(op, "dw", grads)?;
        let sums = b.map(|db| self.operand(op, "db", db)).transpose()?;
        if dw.span.len > 0 {
            let to = self.compute_grad(op, grads.data, dw)?;
            if x.shape.is_empty() || dy.shape.is_empty() {
                // SAFETY: the compute copy holds this many.
                self.work(|| unsafe { self.driver().clear(to, dw.span.len * self.format().bytes()) })?;
            } else {
                let [ready_x, ready_dy] = self.stand_ins([x, dy])?;
                self.pack(op, x, &ready_x)?;
                self.pack(op, dy, &ready_dy)?;
                product(&ready_x, &ready_dy, to)?;
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
