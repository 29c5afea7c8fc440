//! `trait Backend`: every op by its topic in `ops`.

use crate::buffer::Format;
use crate::memory::Memory;
use crate::ops::batch_norm::{Saved, Training};
use crate::{Buffer, Bytes, Cuda, Ints};
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, DropoutMask, Error, ImageSet, Linear, LoadImages,
    NormGrads, NormInfer, NormSaved, NormTrain, OptimizerStep, ParamRun, Pool2d, Result, Run, RunMut, Shape,
    SoftmaxXent, Span, View, ViewMut, WeightSpans, Write,
};

impl Cuda {
    fn alloc_of(&self, len: usize, format: Format) -> Result<Buffer> {
        let memory = self.zeros(len, format.bytes())?;
        Ok(Buffer::new(memory, len, format))
    }

    /// `len` zeros of so many bytes each.
    fn zeros(&self, len: usize, size: usize) -> Result<Memory> {
        let too_many = || Error::OutOfMemory { bytes: usize::MAX, device: self.name_of() };
        Memory::zeros(self.driver(), len.checked_mul(size).ok_or_else(too_many)?)
    }
}

impl Backend for Cuda {
    type Buffer = Buffer;
    type Ints = Ints;
    type Bytes = Bytes;

    fn name(&self) -> String {
        self.name_of()
    }

    fn alloc(&self, len: usize) -> Result<Buffer> {
        self.alloc_of(len, Format::F32)
    }

    fn alloc_activations(&self, len: usize) -> Result<Buffer> {
        self.alloc_of(len, self.format())
    }

    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        Ok(Ints { memory: self.zeros(len, 4)?, len })
    }

    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        Ok(Bytes { memory: Memory::zeros(self.driver(), len)? })
    }

    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()> {
        let to = self.ints("upload_ints", "the target", dst, src.len())?;
        // SAFETY: integers are bytes without gaps, in the order of the device's, as on every host that CUDA runs on.
        let bytes = unsafe { core::slice::from_raw_parts(src.as_ptr().cast(), size_of_val(src)) };
        // SAFETY: the target has room for them, as was checked.
        unsafe { self.driver().write(bytes, to) }
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()> {
        Span::new(offset, src.len()).check("upload_bytes", "the target", dst.len())?;
        // SAFETY: the target has room for them, as was checked.
        unsafe { self.driver().write(src, dst.memory.ptr().offset(offset)) }
    }

    fn synchronize(&self) -> Result<()> {
        self.driver().synchronize()
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn upload(&self, src: &[f32], dst: &mut Buffer, offset: usize) -> Result<()> {
        self.op_upload(src, dst, offset)
    }

    fn download(&self, src: &Buffer, offset: usize, dst: &mut [f32]) -> Result<()> {
        self.op_download(src, offset, dst)
    }

    fn fill(&self, value: f32, dst: &mut Buffer, at: Span) -> Result<()> {
        self.op(|| self.op_fill(value, dst, at))
    }

    fn copy_scaled(&self, factor: f32, x: View<Buffer>, y: ViewMut<Buffer>, write: Write) -> Result<()> {
        self.op(|| self.op_copy(factor, x, y.as_view(), write))
    }

    fn prepare_conv2d(&self, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        self.op_prepare_conv2d(conv, x, training)
    }

    fn prepare_linear(&self, linear: &Linear, n: usize, training: bool) -> Result<()> {
        self.op_prepare_linear(linear, n, training)
    }

    fn conv2d_fwd(
        &self,
        conv: &Conv2d,
        act: Activation,
        x: View<Buffer>,
        weights: Run<Buffer, WeightSpans>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        self.op(|| self.op_conv2d_fwd(conv, act, x, weights, y.as_view()))
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
        self.op(|| self.op_conv2d_bn_act_fwd_infer(conv, bn, x, weights, norm, y.as_view()))
    }

    fn conv2d_bwd_data(
        &self,
        conv: &Conv2d,
        dy: View<Buffer>,
        w: Run<Buffer>,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        self.op(|| self.op_conv2d_bwd_data(conv, dy, w, dx.as_view(), write))
    }

    fn conv2d_bwd_filter(
        &self,
        conv: &Conv2d,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, WeightSpans>,
    ) -> Result<()> {
        self.op(|| self.op_conv2d_bwd_filter(conv, x, dy, grads.as_run()))
    }

    fn linear_fwd(
        &self,
        linear: &Linear,
        act: Activation,
        x: View<Buffer>,
        weights: Run<Buffer, WeightSpans>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        self.op(|| self.op_linear_fwd(linear, act, x, weights, y.as_view()))
    }

    fn linear_bwd_data(
        &self,
        linear: &Linear,
        dy: View<Buffer>,
        w: Run<Buffer>,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        self.op(|| self.op_linear_bwd_data(linear, dy, w, dx.as_view(), write))
    }

    fn linear_bwd_filter(
        &self,
        linear: &Linear,
        x: View<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, WeightSpans>,
    ) -> Result<()> {
        self.op(|| self.op_linear_bwd_filter(linear, x, dy, grads.as_run()))
    }

    fn finish_grads(&self, grads: &mut Buffer, at: Span) -> Result<()> {
        self.op(|| self.op_finish_grads(grads, at))
    }

    fn bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: NormTrain<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        self.op(|| self.op_bn_act_fwd_train(bn, x, Training::alone(&norm, x.layout.shape.c), y.as_view()))
    }

    fn bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: NormInfer<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        self.op(|| self.op_bn_act_fwd_infer(bn, x, norm, y.as_view()))
    }

    fn bn_statistics(&self, x: View<Buffer>, stats: RunMut<Buffer>) -> Result<()> {
        self.op(|| self.op_bn_statistics(x, stats.as_run()))
    }

    fn bn_act_fwd_joined(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        stats: Run<Buffer>,
        norm: NormTrain<Buffer>,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        self.op(|| {
            self.op_bn_act_fwd_joined(bn, x, stats, Training::alone(&norm, x.layout.shape.c), y.as_view())
        })
    }

    fn bn_act_fwd_again(&self, bn: &BatchNorm, norm: NormSaved<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_bn_act_fwd_again(bn, Saved::alone(norm), y.as_view()))
    }

    fn bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Buffer>,
        dy: View<Buffer>,
        grads: RunMut<Buffer, AffineSpans>,
    ) -> Result<()> {
        self.op(|| self.op_bn_act_bwd_params(bn, Saved::alone(norm), dy, grads.as_run()))
    }

    fn bn_act_bwd_data(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Buffer>,
        dy: View<Buffer>,
        whole: NormGrads<Buffer>,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        self.op(|| self.op_bn_act_bwd_data(bn, Saved::alone(norm), dy, whole, dx.as_view(), write))
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
        self.op(|| self.op_ema_step(momentum, scale, sums, from, running, to))
    }

    fn act_fwd(&self, act: Activation, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_act_fwd(act, x, y.as_view()))
    }

    fn add_act(&self, act: Activation, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_add_act(act, x, y.as_view()))
    }

    fn act_bwd(
        &self,
        act: Activation,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        self.op(|| self.op_act_bwd(act, y, dy, dx.as_view(), write))
    }

    fn act_bwd_in_place(&self, act: Activation, y: View<Buffer>, dy: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_act_bwd_in_place(act, y, dy.as_view()))
    }

    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet<Bytes, Ints, Buffer>,
        draws: &Ints,
        first: usize,
        x: ViewMut<Buffer>,
        to: &mut Ints,
    ) -> Result<()> {
        self.op(|| self.op_load_images(load, set, draws, first, x.as_view(), to))
    }

    fn maxpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_maxpool_fwd(pool, x, y.as_view()))
    }

    fn maxpool_bwd(
        &self,
        pool: &Pool2d,
        x: View<Buffer>,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        self.op(|| self.op_maxpool_bwd(pool, x, y, dy, dx.as_view(), write))
    }

    fn avgpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_avgpool_fwd(pool, x, y.as_view()))
    }

    fn avgpool_bwd(&self, pool: &Pool2d, dy: View<Buffer>, dx: ViewMut<Buffer>, write: Write) -> Result<()> {
        self.op(|| self.op_avgpool_bwd(pool, dy, dx.as_view(), write))
    }

    fn dropout(&self, mask: &DropoutMask, x: View<Buffer>, y: ViewMut<Buffer>, write: Write) -> Result<()> {
        self.op(|| self.op_dropout(mask, x, y.as_view(), write))
    }

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_softmax(x, y.as_view()))
    }

    fn softmax_xent(
        &self,
        xent: &SoftmaxXent,
        logits: View<Buffer>,
        labels: &Ints,
        dlogits: Option<ViewMut<Buffer>>,
        sums: &mut Buffer,
        metrics: Span,
    ) -> Result<()> {
        let dlogits = dlogits.as_ref().map(ViewMut::as_view);
        self.op(|| self.op_softmax_xent(xent, logits, labels, dlogits, Run::new(&*sums, metrics)))
    }

    fn meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        self.op(|| self.op_meter(sums, metrics, meter))
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        self.op(|| self.op_optimizer_step(step, params, grads, runs))
    }
}
