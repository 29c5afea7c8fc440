//! Every op in front of its kernel: the operands are checked, then handed on as slices.

use crate::buffer::filled;
use crate::element::{Element, Format, typed};
use crate::norm_operands::{self, Infer, Saved, Train};
use crate::operand::{
    self, alike, labels as labels_of, optimizer_step, run, run_mut, run_of, run_of_mut, tensors, write,
};
use crate::{
    Buffer, Cpu, activation, batch_norm, conv, dropout, elementwise, images, linear, optimizer, pooling,
    softmax,
};
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, DropoutMask, Error, ImageSet, Linear, LoadImages,
    NormGrads, NormInfer, NormSaved, NormTrain, OptimizerStep, ParamRun, Pool2d, Result, Run, RunMut, Shape,
    SoftmaxXent, Span, View, ViewMut, WeightSpans, Write,
};

impl Backend for Cpu {
    type Buffer = Buffer;
    type Ints = Vec<u32>;
    type Bytes = Vec<u8>;

    fn name(&self) -> String {
        let bf16 = if self.is_bf16() { ", bf16" } else { "" };
        match self.threads() {
            1 => format!("the CPU (1 thread{bf16})"),
            threads => format!("the CPU ({threads} threads{bf16})"),
        }
    }

    fn alloc(&self, len: usize) -> Result<Buffer> {
        Buffer::try_zeros(self, len, Format::F32)
    }

    fn alloc_activations(&self, len: usize) -> Result<Buffer> {
        Buffer::try_zeros(self, len, if self.is_bf16() { Format::Bf16 } else { Format::F32 })
    }

    fn alloc_ints(&self, len: usize) -> Result<Vec<u32>> {
        filled(self, len, 0)
    }

    fn alloc_bytes(&self, len: usize) -> Result<Vec<u8>> {
        filled(self, len, 0)
    }

    /// A network's convolutions take many times as long as a pass over their outputs.
    fn recomputes(&self) -> bool {
        true
    }

    fn upload(&self, src: &[f32], dst: &mut Buffer, offset: usize) -> Result<()> {
        let at = Span::new(offset, src.len());
        typed!(dst, |E| {
            let dst = run_of_mut::<E>("upload", "the target", dst, at)?;
            dst.iter_mut().zip(src).for_each(|(dst, &x)| *dst = E::of(x));
        });
        Ok(())
    }

    fn upload_ints(&self, src: &[u32], dst: &mut Vec<u32>) -> Result<()> {
        run_mut("upload_ints", "the target", dst, Span::new(0, src.len()))?.copy_from_slice(src);
        Ok(())
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Vec<u8>, offset: usize) -> Result<()> {
        run_mut("upload_bytes", "the target", dst, Span::new(offset, src.len()))?.copy_from_slice(src);
        Ok(())
    }

    fn download(&self, src: &Buffer, offset: usize, dst: &mut [f32]) -> Result<()> {
        let at = Span::new(offset, dst.len());
        typed!(src, |E| {
            let src = run_of::<E>("download", "the source", src, at)?;
            dst.iter_mut().zip(src).for_each(|(dst, x)| *dst = x.get());
        });
        Ok(())
    }

    fn fill(&self, value: f32, dst: &mut Buffer, at: Span) -> Result<()> {
        typed!(dst, |E| run_of_mut("fill", "the target", dst, at).map(|dst| dst.fill(E::of(value))))
    }

    fn copy_scaled(&self, factor: f32, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        alike("copy", x, &y)?;
        tensors!("copy", x: "the input" => y: "the output"; {
            elementwise::copy(self.pool(), factor, x, y, mode);
        })
    }

    fn prepare_conv2d(&self, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        conv::prepare(self, conv, x, conv.output(x)?, training)
    }

    fn prepare_linear(&self, linear: &Linear, n: usize, training: bool) -> Result<()> {
        linear::prepare(self, linear, n, training)
    }

    fn conv2d_fwd(
        &self,
        conv: &Conv2d,
        act: Activation,
        x: View<Buffer>,
        weights: Run<Buffer, WeightSpans>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let op = "conv2d_fwd";
        conv.check(op, x.layout.shape, y.layout.shape, Some(weights.at.w), weights.at.b)?;
        let (w, b) = operand::weights(op, weights)?;
        tensors!(op, x: "the input" => y: "the output"; conv::forward(self, conv, act, x, w, b, y))
    }

    fn conv2d_bn_act_fwd_infer(
        &self,
        conv: &Conv2d,
        bn: &BatchNorm,
        x: View<Buffer>,
        weights: Run<Buffer, WeightSpans>,
        norm: NormInfer<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let (op, shape) = ("conv2d_bn_act_fwd_infer", y.layout.shape);
        conv.check(op, x.layout.shape, shape, Some(weights.at.w), weights.at.b)?;
        let runs = Infer::new(op, bn, [shape; 2], norm)?;
        let (w, b) = operand::weights(op, weights)?;
        tensors!(op, x: "the input" => y: "the output"; {
            conv::forward_normalized(self, conv, bn, x, w, b, runs, y);
        })
    }

    fn conv2d_bwd_data(
        &self,
        conv: &Conv2d,
        dy: View<Buffer>,
        w: Run<Buffer>,
        dx: ViewMut<Buffer>,
        mode: Write,
    ) -> Result<()> {
        let op = "conv2d_bwd_data";
        conv.check(op, dx.layout.shape, dy.layout.shape, Some(w.at), None)?;
        let w = run(op, "the weights", w.data, w.at)?;
        tensors!(op, dy: "dy" => dx: "dx"; conv::Convolved::backward_data(self, conv, dy, w, dx, mode))
    }

    fn conv2d_bwd_filter(
        &self,
        conv: &Conv2d,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, WeightSpans>,
    ) -> Result<()> {
        let op = "conv2d_bwd_filter";
        conv.check(op, x.layout.shape, dy.layout.shape, Some(grads.at.w), grads.at.b)?;
        let [dw, db] = operand::weight_grads(op, grads)?;
        tensors!(op, x: "the input", dy: "dy"; {
            conv::Convolved::backward_filter(self, conv, x, dy, dw);
            elementwise::column_sums(self, dy, db);
        })
    }

    fn linear_fwd(
        &self,
        linear: &Linear,
        act: Activation,
        x: View<Buffer>,
        weights: Run<Buffer, WeightSpans>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let op = "linear_fwd";
        linear.check(op, x.layout.shape, y.layout.shape, Some(weights.at.w), weights.at.b)?;
        let (w, b) = operand::weights(op, weights)?;
        tensors!(op, x: "the input" => y: "the output"; linear::forward(self, linear, act, x, w, b, y))
    }

    fn linear_bwd_data(
        &self,
        linear: &Linear,
        dy: View<Buffer>,
        w: Run<Buffer>,
        dx: ViewMut<Buffer>,
        mode: Write,
    ) -> Result<()> {
        let op = "linear_bwd_data";
        linear.check(op, dx.layout.shape, dy.layout.shape, Some(w.at), None)?;
        let w = run(op, "the weights", w.data, w.at)?;
        tensors!(op, dy: "dy" => dx: "dx"; linear::backward_data(self, linear, dy, w, dx, mode))
    }

    fn linear_bwd_filter(
        &self,
        linear: &Linear,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, WeightSpans>,
    ) -> Result<()> {
        let op = "linear_bwd_filter";
        linear.check(op, x.layout.shape, dy.layout.shape, Some(grads.at.w), grads.at.b)?;
        let [dw, db] = operand::weight_grads(op, grads)?;
        tensors!(op, x: "the input", dy: "dy"; {
            linear::backward_filter(self, linear, x, dy, dw);
            elementwise::column_sums(self, dy, db);
        })
    }

    fn bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: NormTrain<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let (op, shapes) = ("bn_act_fwd_train", [x.layout.shape, y.layout.shape]);
        let runs = Train::new(op, bn, shapes, norm)?;
        tensors!(op, x: "the input" => y: "the output"; batch_norm::forward_train(self, bn, x, y, runs))
    }

    fn bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: NormInfer<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let (op, shapes) = ("bn_act_fwd_infer", [x.layout.shape, y.layout.shape]);
        let runs = Infer::new(op, bn, shapes, norm)?;
        tensors!(op, x: "the input" => y: "the output"; batch_norm::forward_infer(self, bn, x, runs, y))
    }

    fn bn_statistics(&self, x: View<Buffer>, stats: RunMut<Buffer>) -> Result<()> {
        let op = "bn_statistics";
        let stats = norm_operands::own_stats(op, stats, x.layout.shape.c)?;
        tensors!(op, x: "the input"; batch_norm::statistics(self, x, stats))
    }

    fn bn_act_fwd_joined(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        stats: Run<Buffer>,
        norm: NormTrain<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let (op, shapes) = ("bn_act_fwd_joined", [x.layout.shape, y.layout.shape]);
        let runs = Train::new(op, bn, shapes, norm)?;
        let stats = norm_operands::stats(op, stats, x.layout.shape.c)?;
        tensors!(op, x: "the input" => y: "the output"; batch_norm::forward_joined(self, bn, x, y, stats, runs))
    }

    fn bn_act_fwd_again(&self, bn: &BatchNorm, norm: NormSaved<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let (op, x) = ("bn_act_fwd_again", norm.x);
        let runs = Saved::new(op, bn, norm, ("the output", y.layout.shape))?;
        tensors!(op, x: "the input" => y: "the output"; batch_norm::forward_again(self, bn, x, runs, y))
    }

    fn bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, AffineSpans>,
    ) -> Result<()> {
        let (op, x) = ("bn_act_bwd_params", norm.x);
        let runs = Saved::new(op, bn, norm, ("dy", dy.layout.shape))?;
        let [dgamma, dbeta] = norm_operands::gradients(op, grads, x.layout.shape.c)?;
        tensors!(op, x: "the input", dy: "dy"; {
            batch_norm::backward_params(self, bn, x, dy, runs, dgamma, dbeta);
        })
    }

    fn bn_act_bwd_data(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Buffer>,
        dy: View<Buffer>,
        whole: NormGrads<Buffer>,
        dx: ViewMut<Buffer>,
        mode: Write,
    ) -> Result<()> {
        let (op, x) = ("bn_act_bwd_data", norm.x);
        let runs = Saved::new(op, bn, norm, ("dy", dy.layout.shape))?;
        Error::check_shape(op, "dx", dx.layout.shape, x.layout.shape)?;
        let sums = norm_operands::whole(op, &whole, x.layout.shape.c)?;
        tensors!(op, x: "the input", dy: "dy" => dx: "dx"; {
            batch_norm::backward_data(self, bn, x, dy, runs, sums, whole.count, dx, mode);
        })
    }

    fn ema_step(
        &self,
        momentum: f32,
        scale: f32,
        sums: &Buffer,
        from: Span,
        running: &mut Buffer,
        to: Span,
    ) -> Result<()> {
        let op = "ema_step";
        Error::check_len(op, "the running averages", to, from.len)?;
        let sums = run(op, "the sums", sums, from)?;
        optimizer::ema(momentum, scale, sums, run_mut(op, "the running averages", running, to)?);
        Ok(())
    }

    fn meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        let op = "meter";
        Error::check_len(op, "the metrics", metrics, 2)?;
        let metrics = run(op, "the metrics", sums, metrics)?;
        optimizer::meter(metrics, run_mut(op, "the meter", meter, Span::new(0, 4))?);
        Ok(())
    }

    fn act_fwd(&self, act: Activation, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        alike("act_fwd", x, &y)?;
        tensors!("act_fwd", x: "the input" => y: "the output"; activation::forward(self, act, x, y))
    }

    fn add_act(&self, act: Activation, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        alike("add_act", x, &y)?;
        tensors!("add_act", x: "the input" => y: "the output"; activation::add_forward(self, act, x, y))
    }

    fn act_bwd(
        &self,
        act: Activation,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: ViewMut<Buffer>,
        mode: Write,
    ) -> Result<()> {
        let op = "act_bwd";
        Error::check_shape(op, "dy", dy.layout.shape, y.layout.shape)?;
        Error::check_shape(op, "dx", dx.layout.shape, y.layout.shape)?;
        tensors!(op, y: "y", dy: "dy" => dx: "dx"; activation::backward(self, act, y, dy, dx, mode))
    }

    fn act_bwd_in_place(&self, act: Activation, y: View<Buffer>, dy: ViewMut<Buffer>) -> Result<()> {
        let op = "act_bwd_in_place";
        Error::check_shape(op, "dy", dy.layout.shape, y.layout.shape)?;
        tensors!(op, y: "y" => dy: "dy"; activation::backward_in_place(self, act, y, dy))
    }

    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet<Vec<u8>, Vec<u32>, Buffer>,
        draws: &Vec<u32>,
        first: usize,
        x: ViewMut<Buffer>,
        to: &mut Vec<u32>,
    ) -> Result<()> {
        images::load(self.pool(), load, set, draws, first, x, to)
    }

    fn maxpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "maxpool_fwd";
        pool.check(op, x.layout.shape, y.layout.shape)?;
        tensors!(op, x: "the input" => y: "the output"; pooling::forward(self, pooling::Maximum, pool, x, y))
    }

    fn maxpool_bwd(
        &self,
        pool: &Pool2d,
        x: View<Buffer>,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: ViewMut<Buffer>,
        mode: Write,
    ) -> Result<()> {
        let op = "maxpool_bwd";
        pool.check(op, x.layout.shape, y.layout.shape)?;
        Error::check_shape(op, "dy", dy.layout.shape, y.layout.shape)?;
        Error::check_shape(op, "dx", dx.layout.shape, x.layout.shape)?;
        tensors!(op, x: "the input", y: "the output", dy: "dy" => dx: "dx"; {
            pooling::max_backward(self, pool, x, y, dy, dx, mode);
        })
    }

    fn avgpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "avgpool_fwd";
        pool.check(op, x.layout.shape, y.layout.shape)?;
        tensors!(op, x: "the input" => y: "the output"; pooling::forward(self, pooling::Average, pool, x, y))
    }

    fn avgpool_bwd(&self, pool: &Pool2d, dy: View<Buffer>, dx: ViewMut<Buffer>, mode: Write) -> Result<()> {
        let op = "avgpool_bwd";
        pool.check(op, dx.layout.shape, dy.layout.shape)?;
        tensors!(op, dy: "dy" => dx: "dx"; pooling::average_backward(self, pool, dy, dx, mode))
    }

    fn dropout(&self, mask: &DropoutMask, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        mask.check("dropout")?;
        alike("dropout", x, &y)?;
        tensors!("dropout", x: "the input" => y: "the output"; dropout::apply(self, mask, x, y, mode))
    }

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        alike("softmax", x, &y)?;
        typed!(y.data, |O| {
            let y = write::<O>("softmax", "the output", y)?;
            tensors!("softmax", x: "the input"; softmax::probabilities(x, y))
        })
    }

    fn softmax_xent(
        &self,
        xent: &SoftmaxXent,
        logits: View<Buffer>,
        labels: &Vec<u32>,
        dlogits: Option<ViewMut<Buffer>>,
        sums: &mut Buffer,
        metrics: Span,
    ) -> Result<()> {
        let (op, written) = ("softmax_xent", dlogits.as_ref().map(|d| d.layout.shape));
        let labels = labels_of(op, xent, logits.layout.shape, written, labels, metrics)?;
        let metrics = run_mut(op, "the metrics", sums, metrics)?;
        tensors!(op, logits: "the logits"; {
            let dlogits = dlogits.map(|d| write(op, "dlogits", d)).transpose()?;
            softmax::cross_entropy(xent, logits, labels, dlogits, metrics);
        })
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        optimizer_step(self.pool(), step, params, grads, runs)
    }
}
