use crate::storage::{
    Bytes, Ints, Storage, buf, buf_mut, bytes, bytes_mut, ints, ints_mut, norm_infer, norm_saved, norm_train,
    run, run_mut, view, view_mut, wrap, wrap_bytes, wrap_ints,
};
use crate::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, Device, DropoutMask, ImageSet, Linear, LoadImages,
    Moments, NormGrads, NormInfer, NormSaved, NormTrain, OptimizerStep, ParamRun, Pool2d, Result, Run,
    RunMut, Shape, SoftmaxXent, Span, View, ViewMut, WeightSpans, Write,
};

/// Runs `$body` on the backend behind a device; `$d` is that backend.
macro_rules! on {
    ($device:expr, $d:ident => $body:expr) => {
        match $device {
            Device::Cpu($d) => $body,
            Device::Reference($d) => $body,
            Device::Cuda($d) => $body,
        }
    };
}

impl Backend for Device {
    type Buffer = Storage;
    type Ints = Ints;
    type Bytes = Bytes;

    fn name(&self) -> String {
        on!(self, d => d.name())
    }

    fn alloc(&self, len: usize) -> Result<Storage> {
        on!(self, d => d.alloc(len).map(|buffer| wrap(d, buffer)))
    }

    fn alloc_activations(&self, len: usize) -> Result<Storage> {
        on!(self, d => d.alloc_activations(len).map(|buffer| wrap(d, buffer)))
    }

    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        on!(self, d => d.alloc_ints(len).map(|ints| wrap_ints(d, ints)))
    }

    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        on!(self, d => d.alloc_bytes(len).map(|bytes| wrap_bytes(d, bytes)))
    }

    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()> {
        on!(self, d => d.upload(src, buf_mut(d, "upload", dst)?, offset))
    }

    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()> {
        on!(self, d => d.upload_ints(src, ints_mut(d, "upload_ints", dst)?))
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()> {
        on!(self, d => d.upload_bytes(src, bytes_mut(d, "upload_bytes", dst)?, offset))
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [f32]) -> Result<()> {
        on!(self, d => d.download(buf(d, "download", src)?, offset, dst))
    }

    fn synchronize(&self) -> Result<()> {
        on!(self, d => d.synchronize())
    }

    fn runs_ahead(&self) -> bool {
        on!(self, d => d.runs_ahead())
    }

    fn recomputes(&self) -> bool {
        on!(self, d => d.recomputes())
    }

    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()> {
        on!(self, d => d.fill(value, buf_mut(d, "fill", dst)?, at))
    }

    fn copy_scaled(&self, factor: f32, x: View<Storage>, y: ViewMut<Storage>, write: Write) -> Result<()> {
        on!(self, d => d.copy_scaled(factor, view(d, "copy", x)?, view_mut(d, "copy", y)?, write))
    }

    fn prepare_conv2d(&self, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        on!(self, d => d.prepare_conv2d(conv, x, training))
    }

    fn prepare_linear(&self, linear: &Linear, n: usize, training: bool) -> Result<()> {
        on!(self, d => d.prepare_linear(linear, n, training))
    }

    fn conv2d_fwd(
        &self,
        conv: &Conv2d,
        act: Activation,
        x: View<Storage>,
        weights: Run<Storage, WeightSpans>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "conv2d_fwd";
        on!(self, d => d.conv2d_fwd(conv, act, view(d, op, x)?, run(d, op, weights)?, view_mut(d, op, y)?))
    }

    fn conv2d_bn_act_fwd_infer(
        &self,
        conv: &Conv2d,
        bn: &BatchNorm,
        x: View<Storage>,
        weights: Run<Storage, WeightSpans>,
        norm: NormInfer<Storage>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "conv2d_bn_act_fwd_infer";
        on!(self, d => {
            let (x, y) = (view(d, op, x)?, view_mut(d, op, y)?);
            d.conv2d_bn_act_fwd_infer(conv, bn, x, run(d, op, weights)?, norm_infer(d, op, norm)?, y)
        })
    }

    fn conv2d_bwd_data(
        &self,
        conv: &Conv2d,
        dy: View<Storage>,
        w: Run<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        let op = "conv2d_bwd_data";
        on!(self, d => d.conv2d_bwd_data(conv, view(d, op, dy)?, run(d, op, w)?, view_mut(d, op, dx)?, write))
    }

    fn conv2d_bwd_filter(
        &self,
        conv: &Conv2d,
        x: View<Storage>,
        dy: View<Storage>,
        grads: RunMut<Storage, WeightSpans>,
    ) -> Result<()> {
        let op = "conv2d_bwd_filter";
        on!(self, d => d.conv2d_bwd_filter(conv, view(d, op, x)?, view(d, op, dy)?, run_mut(d, op, grads)?))
    }

    fn linear_fwd(
        &self,
        linear: &Linear,
        act: Activation,
        x: View<Storage>,
        weights: Run<Storage, WeightSpans>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "linear_fwd";
        on!(self, d => d.linear_fwd(linear, act, view(d, op, x)?, run(d, op, weights)?, view_mut(d, op, y)?))
    }

    fn linear_bwd_data(
        &self,
        linear: &Linear,
        dy: View<Storage>,
        w: Run<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        let op = "linear_bwd_data";
        on!(self, d => d.linear_bwd_data(linear, view(d, op, dy)?, run(d, op, w)?, view_mut(d, op, dx)?, write))
    }

    fn linear_bwd_filter(
        &self,
        linear: &Linear,
        x: View<Storage>,
        dy: View<Storage>,
        grads: RunMut<Storage, WeightSpans>,
    ) -> Result<()> {
        let op = "linear_bwd_filter";
        on!(self, d => d.linear_bwd_filter(linear, view(d, op, x)?, view(d, op, dy)?, run_mut(d, op, grads)?))
    }

    fn finish_grads(&self, grads: &mut Storage, at: Span) -> Result<()> {
        on!(self, d => d.finish_grads(buf_mut(d, "finish_grads", grads)?, at))
    }

    fn bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Storage>,
        norm: NormTrain<Storage>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "bn_act_fwd_train";
        on!(self, d => d.bn_act_fwd_train(bn, view(d, op, x)?, norm_train(d, op, norm)?, view_mut(d, op, y)?))
    }

    fn bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Storage>,
        norm: NormInfer<Storage>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "bn_act_fwd_infer";
        on!(self, d => d.bn_act_fwd_infer(bn, view(d, op, x)?, norm_infer(d, op, norm)?, view_mut(d, op, y)?))
    }

    fn bn_statistics(&self, x: View<Storage>, stats: RunMut<Storage>) -> Result<()> {
        let op = "bn_statistics";
        on!(self, d => d.bn_statistics(view(d, op, x)?, run_mut(d, op, stats)?))
    }

    fn bn_act_fwd_joined(
        &self,
        bn: &BatchNorm,
        x: View<Storage>,
        stats: Run<Storage>,
        norm: NormTrain<Storage>,
        y: ViewMut<Storage>,
    ) -> Result<()> {
        let op = "bn_act_fwd_joined";
        on!(self, d => {
            let (x, y) = (view(d, op, x)?, view_mut(d, op, y)?);
            d.bn_act_fwd_joined(bn, x, run(d, op, stats)?, norm_train(d, op, norm)?, y)
        })
    }

    fn bn_act_fwd_again(&self, bn: &BatchNorm, norm: NormSaved<Storage>, y: ViewMut<Storage>) -> Result<()> {
        let op = "bn_act_fwd_again";
        on!(self, d => d.bn_act_fwd_again(bn, norm_saved(d, op, norm)?, view_mut(d, op, y)?))
    }

    fn bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Storage>,
        dy: View<Storage>,
        grads: RunMut<Storage, AffineSpans>,
    ) -> Result<()> {
        let op = "bn_act_bwd_params";
        on!(self, d => d.bn_act_bwd_params(bn, norm_saved(d, op, norm)?, view(d, op, dy)?, run_mut(d, op, grads)?))
    }

    fn bn_act_bwd_data(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Storage>,
        dy: View<Storage>,
        whole: NormGrads<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        let op = "bn_act_bwd_data";
        on!(self, d => {
            let whole = NormGrads { grads: run(d, op, whole.grads)?, count: whole.count };
            d.bn_act_bwd_data(bn, norm_saved(d, op, norm)?, view(d, op, dy)?, whole, view_mut(d, op, dx)?, write)
        })
    }

    fn ema_step(
        &self,
        momentum: f32,
        scale: f32,
        sums: &Storage,
        from: Span,
        running: &mut Storage,
        to: Span,
    ) -> Result<()> {
        on!(self, d => d.ema_step(momentum, scale, buf(d, "ema_step", sums)?, from, buf_mut(d, "ema_step", running)?, to))
    }

    fn meter(&self, sums: &Storage, metrics: Span, meter: &mut Storage) -> Result<()> {
        on!(self, d => d.meter(buf(d, "meter", sums)?, metrics, buf_mut(d, "meter", meter)?))
    }

    fn act_fwd(&self, act: Activation, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.act_fwd(act, view(d, "act_fwd", x)?, view_mut(d, "act_fwd", y)?))
    }

    fn add_act(&self, act: Activation, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.add_act(act, view(d, "add_act", x)?, view_mut(d, "add_act", y)?))
    }

    fn act_bwd(
        &self,
        act: Activation,
        y: View<Storage>,
        dy: View<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        on!(self, d => d.act_bwd(act, view(d, "act_bwd", y)?, view(d, "act_bwd", dy)?, view_mut(d, "act_bwd", dx)?, write))
    }

    fn act_bwd_in_place(&self, act: Activation, y: View<Storage>, dy: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.act_bwd_in_place(act, view(d, "act_bwd_in_place", y)?, view_mut(d, "act_bwd_in_place", dy)?))
    }

    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet<Bytes, Ints, Storage>,
        draws: &Ints,
        first: usize,
        x: ViewMut<Storage>,
        to: &mut Ints,
    ) -> Result<()> {
        let (op, ImageSet { images, labels, means }) = ("load_images", set);
        on!(self, d => {
            let (images, labels) = (bytes(d, op, images)?, ints(d, op, labels)?);
            let set = ImageSet { images, labels, means: buf(d, op, means)? };
            d.load_images(load, set, ints(d, op, draws)?, first, view_mut(d, op, x)?, ints_mut(d, op, to)?)
        })
    }

    fn maxpool_fwd(&self, pool: &Pool2d, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.maxpool_fwd(pool, view(d, "maxpool_fwd", x)?, view_mut(d, "maxpool_fwd", y)?))
    }

    fn maxpool_bwd(
        &self,
        pool: &Pool2d,
        x: View<Storage>,
        y: View<Storage>,
        dy: View<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        on!(self, d => d.maxpool_bwd(pool, view(d, "maxpool_bwd", x)?, view(d, "maxpool_bwd", y)?, view(d, "maxpool_bwd", dy)?, view_mut(d, "maxpool_bwd", dx)?, write))
    }

    fn avgpool_fwd(&self, pool: &Pool2d, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.avgpool_fwd(pool, view(d, "avgpool_fwd", x)?, view_mut(d, "avgpool_fwd", y)?))
    }

    fn avgpool_bwd(
        &self,
        pool: &Pool2d,
        dy: View<Storage>,
        dx: ViewMut<Storage>,
        write: Write,
    ) -> Result<()> {
        on!(self, d => d.avgpool_bwd(pool, view(d, "avgpool_bwd", dy)?, view_mut(d, "avgpool_bwd", dx)?, write))
    }

    fn dropout(&self, mask: &DropoutMask, x: View<Storage>, y: ViewMut<Storage>, write: Write) -> Result<()> {
        on!(self, d => d.dropout(mask, view(d, "dropout", x)?, view_mut(d, "dropout", y)?, write))
    }

    fn softmax(&self, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.softmax(view(d, "softmax", x)?, view_mut(d, "softmax", y)?))
    }

    fn softmax_xent(
        &self,
        xent: &SoftmaxXent,
        logits: View<Storage>,
        labels: &Ints,
        dlogits: Option<ViewMut<Storage>>,
        sums: &mut Storage,
        metrics: Span,
    ) -> Result<()> {
        on!(self, d => d.softmax_xent(xent, view(d, "softmax_xent", logits)?, ints(d, "softmax_xent", labels)?, dlogits.map(|v| view_mut(d, "softmax_xent", v)).transpose()?, buf_mut(d, "softmax_xent", sums)?, metrics))
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Storage>,
        params: &mut Storage,
        grads: &Storage,
        runs: &[ParamRun],
    ) -> Result<()> {
        let op = "optimizer_step";
        on!(self, d => {
            let step = match step {
                OptimizerStep::Sgd(step, velocity) => OptimizerStep::Sgd(step, buf_mut(d, op, velocity)?),
                OptimizerStep::Rmsprop(step, squares) => OptimizerStep::Rmsprop(step, buf_mut(d, op, squares)?),
                OptimizerStep::Adam(step, Moments { mean, mean_square, steps }) => {
                    let (mean, mean_square) = (buf_mut(d, op, mean)?, buf_mut(d, op, mean_square)?);
                    OptimizerStep::Adam(step, Moments { mean, mean_square, steps: buf_mut(d, op, steps)? })
                }
            };
            d.optimizer_step(step, buf_mut(d, op, params)?, buf(d, op, grads)?, runs)
        })
    }
}
