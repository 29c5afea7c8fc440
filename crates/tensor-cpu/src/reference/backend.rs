//! Every op in front of its loop: the operands are checked, then handed on.

use super::operand::{Input, Output, pair};
use super::{
    Reference, activation, batch_norm, conv, elementwise, images, linear, optimizer, pooling, softmax,
};
use crate::buffer::filled;
use crate::norm_operands::{self, Infer, Saved, Train};
use crate::operand::{self, labels as labels_of, optimizer_step, run, run_mut};
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, DropoutMask, Error, ImageSet, Linear, LoadImages,
    NormGrads, NormInfer, NormSaved, NormTrain, OptimizerStep, ParamRun, Pool2d, Result, Run, RunMut, Shape,
    SoftmaxXent, Span, View, ViewMut, WeightSpans, Write,
};

/// Tensors in f64.
type Buffer = Vec<f64>;

impl Backend for Reference {
    type Buffer = Buffer;
    type Ints = Vec<u32>;
    type Bytes = Vec<u8>;

    fn name(&self) -> String {
        "the f64 reference".to_owned()
    }

    fn alloc(&self, len: usize) -> Result<Buffer> {
        filled(self, len, 0.0)
    }

    fn alloc_ints(&self, len: usize) -> Result<Vec<u32>> {
        filled(self, len, 0)
    }

    fn alloc_bytes(&self, len: usize) -> Result<Vec<u8>> {
        filled(self, len, 0)
    }

    /// So that it is checked as the CPU is.
    fn recomputes(&self) -> bool {
        true
    }

    fn upload(&self, src: &[f32], dst: &mut Buffer, offset: usize) -> Result<()> {
        let dst = run_mut("upload", "the target", dst, Span::new(offset, src.len()))?;
        dst.iter_mut().zip(src).for_each(|(dst, &src)| *dst = f64::from(src));
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
        let src = run("download", "the source", src, Span::new(offset, dst.len()))?;
        dst.iter_mut().zip(src).for_each(|(dst, &src)| *dst = src as f32);
        Ok(())
    }

    fn fill(&self, value: f32, dst: &mut Buffer, at: Span) -> Result<()> {
        run_mut("fill", "the target", dst, at)?.fill(f64::from(value));
        Ok(())
    }

    fn copy_scaled(&self, factor: f32, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        pair("copy", x, y).map(|(x, y)| elementwise::copy(f64::from(factor), x, y, mode))
    }

    fn prepare_conv2d(&self, conv: &Conv2d, x: Shape, _training: bool) -> Result<()> {
        conv.output(x).map(drop)
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
        conv::forward(conv, act, Input::new(op, "the input", x)?, w, b, Output::new(op, "the output", y)?);
        Ok(())
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
        let (x, y) = (Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        conv::forward_normalized(conv, bn, x, w, b, runs, y);
        Ok(())
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
        conv::backward_data(conv, Input::new(op, "dy", dy)?, w, Output::new(op, "dx", dx)?, mode);
        Ok(())
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
        let (x, dy) = (Input::new(op, "the input", x)?, Input::new(op, "dy", dy)?);
        let [dw, db] = operand::weight_grads(op, grads)?;
        conv::backward_filter(conv, x, dy, dw);
        elementwise::column_sums(dy, db);
        Ok(())
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
        let (x, y) = (Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        linear::forward(linear, act, x, w, b, y);
        Ok(())
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
        linear::backward_data(linear, Input::new(op, "dy", dy)?, w, Output::new(op, "dx", dx)?, mode);
        Ok(())
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
        let (x, dy) = (Input::new(op, "the input", x)?, Input::new(op, "dy", dy)?);
        let [dw, db] = operand::weight_grads(op, grads)?;
        linear::backward_filter(linear, x, dy, dw);
        elementwise::column_sums(dy, db);
        Ok(())
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
        let (x, y) = (Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        batch_norm::forward_train(bn, x, y, runs);
        Ok(())
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
        let (x, y) = (Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        batch_norm::forward_infer(bn, x, runs, y);
        Ok(())
    }

    fn bn_statistics(&self, x: View<Buffer>, stats: RunMut<Buffer>) -> Result<()> {
        let op = "bn_statistics";
        let stats = norm_operands::own_stats(op, stats, x.layout.shape.c)?;
        batch_norm::statistics(Input::new(op, "the input", x)?, stats);
        Ok(())
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
        let (x, y) = (Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        batch_norm::forward_joined(bn, x, y, stats, runs);
        Ok(())
    }

    fn bn_act_fwd_again(&self, bn: &BatchNorm, norm: NormSaved<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "bn_act_fwd_again";
        let runs = Saved::new(op, bn, norm, ("the output", y.layout.shape))?;
        let (x, y) = (Input::new(op, "the input", norm.x)?, Output::new(op, "the output", y)?);
        batch_norm::forward_again(bn, x, runs, y);
        Ok(())
    }

    fn bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, AffineSpans>,
    ) -> Result<()> {
        let op = "bn_act_bwd_params";
        let runs = Saved::new(op, bn, norm, ("dy", dy.layout.shape))?;
        let [dgamma, dbeta] = norm_operands::gradients(op, grads, norm.x.layout.shape.c)?;
        let (x, dy) = (Input::new(op, "the input", norm.x)?, Input::new(op, "dy", dy)?);
        batch_norm::backward_params(bn, x, dy, runs, dgamma, dbeta);
        Ok(())
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
        let (op, shape) = ("bn_act_bwd_data", norm.x.layout.shape);
        let runs = Saved::new(op, bn, norm, ("dy", dy.layout.shape))?;
        Error::check_shape(op, "dx", dx.layout.shape, shape)?;
        let sums = norm_operands::whole(op, &whole, shape.c)?;
        let (x, dy) = (Input::new(op, "the input", norm.x)?, Input::new(op, "dy", dy)?);
        let dx = Output::new(op, "dx", dx)?;
        batch_norm::backward_data(bn, x, dy, runs, sums, whole.count, dx, mode);
        Ok(())
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
        let running = run_mut(op, "the running averages", running, to)?;
        optimizer::ema(momentum.into(), scale.into(), sums, running);
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
        pair("act_fwd", x, y).map(|(x, y)| activation::forward(act, x, y))
    }

    fn add_act(&self, act: Activation, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        pair("add_act", x, y).map(|(x, y)| activation::add_forward(act, x, y))
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
        let (y, dy, dx) = (Input::new(op, "y", y)?, Input::new(op, "dy", dy)?, Output::new(op, "dx", dx)?);
        activation::backward(act, y, dy, dx, mode);
        Ok(())
    }

    fn act_bwd_in_place(&self, act: Activation, y: View<Buffer>, dy: ViewMut<Buffer>) -> Result<()> {
        let op = "act_bwd_in_place";
        Error::check_shape(op, "dy", dy.layout.shape, y.layout.shape)?;
        activation::backward_in_place(act, Input::new(op, "y", y)?, Output::new(op, "dy", dy)?);
        Ok(())
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
        images::load(load, set, draws, first, x, to)
    }

    fn maxpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "maxpool_fwd";
        pool.check(op, x.layout.shape, y.layout.shape)?;
        pooling::max_forward(pool, Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        Ok(())
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
        Input::new(op, "the output", y)?;
        let (x, dy) = (Input::new(op, "the input", x)?, Input::new(op, "dy", dy)?);
        pooling::max_backward(pool, x, dy, Output::new(op, "dx", dx)?, mode);
        Ok(())
    }

    fn avgpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        let op = "avgpool_fwd";
        pool.check(op, x.layout.shape, y.layout.shape)?;
        pooling::average_forward(pool, Input::new(op, "the input", x)?, Output::new(op, "the output", y)?);
        Ok(())
    }

    fn avgpool_bwd(&self, pool: &Pool2d, dy: View<Buffer>, dx: ViewMut<Buffer>, mode: Write) -> Result<()> {
        let op = "avgpool_bwd";
        pool.check(op, dx.layout.shape, dy.layout.shape)?;
        pooling::average_backward(pool, Input::new(op, "dy", dy)?, Output::new(op, "dx", dx)?, mode);
        Ok(())
    }

    fn dropout(&self, mask: &DropoutMask, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        mask.check("dropout")?;
        pair("dropout", x, y).map(|(x, y)| elementwise::dropout(mask, x, y, mode))
    }

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        pair("softmax", x, y).map(|(x, y)| softmax::probabilities(x, y))
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
        let dlogits = dlogits.map(|d| Output::new(op, "dlogits", d)).transpose()?;
        let metrics = run_mut(op, "the metrics", sums, metrics)?;
        softmax::cross_entropy(xent, Input::new(op, "the logits", logits)?, labels, dlogits, metrics);
        Ok(())
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        optimizer_step(&optimizer::Plain, step, params, grads, runs)
    }
}
