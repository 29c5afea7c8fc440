use crate::{
    Activation, AffineSpans, BatchNorm, Conv2d, DropoutMask, ImageSet, Linear, LoadImages, NormGrads,
    NormInfer, NormSaved, NormTrain, OptimizerStep, ParamRun, Pool2d, Result, RmspropStep, Run, RunMut,
    SgdStep, Shape, SoftmaxXent, Span, View, ViewMut, WeightSpans,
};

/// Whether an op replaces what its output held or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// `y = ...`
    Set,
    /// `y += ...`: the gradient of a tensor that several layers read.
    Add,
}

/// The ops of a device, each the size of a layer.
///
/// All operands live on this device. Outputs are `&mut` and the caller's own: no op allocates, except the `alloc`s, the
/// `prepare`s and, for scratch memory that ops share, the first run of an op on its largest batch. Where nothing else is
/// said an op sets (`=`) its outputs. Results are a function of the operands alone: the same bits for any number of
/// threads.
///
/// `params`, `grads` and their like are flat arenas in which a [`Span`] marks one tensor; a [`Run`] is both. Every op checks its operands'
/// sizes and returns an error that names what does not fit.
pub trait Backend {
    /// A run of numbers on the device.
    type Buffer;
    /// A run of unsigned integers on the device, for labels.
    type Ints;
    /// A run of bytes on the device, for images.
    type Bytes;

    /// The device's name, for messages.
    fn name(&self) -> String;

    /// A buffer of `len` zeros.
    fn alloc(&self, len: usize) -> Result<Self::Buffer>;

    /// A buffer of `len` zeros for activations and their gradients: in the device's number format for these, where that
    /// is another than f32. By default it is the same.
    fn alloc_activations(&self, len: usize) -> Result<Self::Buffer> {
        self.alloc(len)
    }

    /// `len` zeros of integers.
    fn alloc_ints(&self, len: usize) -> Result<Self::Ints>;

    /// `len` zeros of bytes.
    fn alloc_bytes(&self, len: usize) -> Result<Self::Bytes>;

    /// Copies `src` to the device, into `dst` from element `offset` on.
    fn upload(&self, src: &[f32], dst: &mut Self::Buffer, offset: usize) -> Result<()>;

    /// Copies `src` to the device, to the start of `dst`.
    fn upload_ints(&self, src: &[u32], dst: &mut Self::Ints) -> Result<()>;

    /// Copies `src` to the device, into `dst` from byte `offset` on.
    fn upload_bytes(&self, src: &[u8], dst: &mut Self::Bytes, offset: usize) -> Result<()>;

    /// Copies elements of `src` from `offset` on from the device, waiting for what was asked before.
    fn download(&self, src: &Self::Buffer, offset: usize, dst: &mut [f32]) -> Result<()>;

    /// Waits until everything that was asked for is done. By default it is when ops return.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Whether ops return before their work is done, so that to read a number means to wait. By default not.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Whether memory is dearer here than a cheap pass over it: training then computes outputs of normalizations once more in
    /// the backward pass, by [`bn_act_fwd_again`](Backend::bn_act_fwd_again), instead of keeping them, and memory is used again as
    /// soon as it can be. By default not.
    fn recomputes(&self) -> bool {
        false
    }

    /// Sets every element of a run.
    fn fill(&self, value: f32, dst: &mut Self::Buffer, at: Span) -> Result<()>;

    /// `y = x` or `y += x`, for tensors of one shape.
    fn copy(&self, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>, write: Write) -> Result<()> {
        self.copy_scaled(1.0, x, y, write)
    }

    /// `y = factor * x` or `y += factor * x`, for tensors of one shape.
    fn copy_scaled(
        &self,
        factor: f32,
        x: View<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// Plans and reserves what a convolution needs beside its operands, for inputs of up to this shape. Ops on
    /// larger inputs work too, but may allocate.
    fn prepare_conv2d(&self, conv: &Conv2d, x: Shape, training: bool) -> Result<()>;

    /// Plans and reserves what a dense layer needs beside its operands, for up to `n` samples. More work too, but may
    /// allocate. By default nothing is needed.
    fn prepare_linear(&self, _linear: &Linear, _n: usize, _training: bool) -> Result<()> {
        Ok(())
    }

    /// `y = act(conv(x, w) + b)`.
    fn conv2d_fwd(
        &self,
        conv: &Conv2d,
        act: Activation,
        x: View<Self::Buffer>,
        weights: Run<Self::Buffer, WeightSpans>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// A convolution and the batch normalization that alone reads it, as in inference: what
    /// [`conv2d_fwd`](Backend::conv2d_fwd) without an activation and [`bn_act_fwd_infer`](Backend::bn_act_fwd_infer) compute,
    /// up to rounding, with no tensor in between.
    fn conv2d_bn_act_fwd_infer(
        &self,
        conv: &Conv2d,
        bn: &BatchNorm,
        x: View<Self::Buffer>,
        weights: Run<Self::Buffer, WeightSpans>,
        norm: NormInfer<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// The gradient of the input, set or added. `dy` is the gradient before the activation.
    fn conv2d_bwd_data(
        &self,
        conv: &Conv2d,
        dy: View<Self::Buffer>,
        w: Run<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// The gradients of weights and bias. `dy` is the gradient before the activation.
    fn conv2d_bwd_filter(
        &self,
        conv: &Conv2d,
        x: View<Self::Buffer>,
        dy: View<Self::Buffer>,
        grads: RunMut<Self::Buffer, WeightSpans>,
    ) -> Result<()>;

    /// `y = act(x w + b)`.
    fn linear_fwd(
        &self,
        linear: &Linear,
        act: Activation,
        x: View<Self::Buffer>,
        weights: Run<Self::Buffer, WeightSpans>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// The gradient of the input, set or added. `dy` is the gradient before the activation.
    fn linear_bwd_data(
        &self,
        linear: &Linear,
        dy: View<Self::Buffer>,
        w: Run<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// The gradients of weights and bias. `dy` is the gradient before the activation.
    fn linear_bwd_filter(
        &self,
        linear: &Linear,
        x: View<Self::Buffer>,
        dy: View<Self::Buffer>,
        grads: RunMut<Self::Buffer, WeightSpans>,
    ) -> Result<()>;

    /// Completes the gradients of the weights that lie in the run `at` of `grads`: until then a device may keep what
    /// [`conv2d_bwd_filter`](Backend::conv2d_bwd_filter) and [`linear_bwd_filter`](Backend::linear_bwd_filter) computed in a
    /// form of its own, to bring all of it into place at once. By default there is nothing to do.
    fn finish_grads(&self, _grads: &mut Self::Buffer, _at: Span) -> Result<()> {
        Ok(())
    }

    /// Batch normalization with the batch's own statistics, for training.
    fn bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Self::Buffer>,
        norm: NormTrain<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// Batch normalization with the running statistics, for inference.
    fn bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Self::Buffer>,
        norm: NormInfer<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// The first half of [`bn_act_fwd_train`](Backend::bn_act_fwd_train) where several replicas have parts of the batch: `stats`
    /// (2c + 1 elements) receives this replica's means, its sums of squared differences from them, and its number of samples.
    fn bn_statistics(&self, x: View<Self::Buffer>, stats: RunMut<Self::Buffer>) -> Result<()>;

    /// The second half, once replicas know each other's statistics: `stats` holds those of all replicas, one behind the other, as
    /// [`bn_statistics`](Backend::bn_statistics) left them.
    ///
    /// They are joined in this order to mean and variance of the whole batch, without loss to large means. `x` and `y` are this
    /// replica's. `norm` receives what it does in [`bn_act_fwd_train`](Backend::bn_act_fwd_train), with the whole batch's
    /// statistics and, in `n * mean` and `n * unbiased variance`, this replica's n.
    fn bn_act_fwd_joined(
        &self,
        bn: &BatchNorm,
        x: View<Self::Buffer>,
        stats: Run<Self::Buffer>,
        norm: NormTrain<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// The output of [`bn_act_fwd_train`](Backend::bn_act_fwd_train) or [`bn_act_fwd_joined`](Backend::bn_act_fwd_joined) once
    /// more, with the same bits.
    fn bn_act_fwd_again(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// The gradients of the input (set or added), gamma and beta. `dy` is the gradient after the activation, whose
    /// mask is computed again from what `norm` has.
    ///
    /// It is [`bn_act_bwd_params`](Backend::bn_act_bwd_params) and then [`bn_act_bwd_data`](Backend::bn_act_bwd_data), between
    /// which replicas with parts of a batch add up their gradients.
    fn bn_act_bwd(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Self::Buffer>,
        dy: View<Self::Buffer>,
        mut grads: RunMut<Self::Buffer, AffineSpans>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()> {
        self.bn_act_bwd_params(bn, norm, dy, grads.reborrow())?;
        let whole = NormGrads { grads: grads.as_run(), count: norm.x.layout.shape.rows() };
        self.bn_act_bwd_data(bn, norm, dy, whole, dx, write)
    }

    /// The gradients of gamma and beta, from this replica's samples.
    fn bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Self::Buffer>,
        dy: View<Self::Buffer>,
        grads: RunMut<Self::Buffer, AffineSpans>,
    ) -> Result<()>;

    /// The gradient of the input, set or added, from the gradients of gamma and beta over the whole batch.
    fn bn_act_bwd_data(
        &self,
        bn: &BatchNorm,
        norm: NormSaved<Self::Buffer>,
        dy: View<Self::Buffer>,
        whole: NormGrads<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// `running = momentum * running + (1 - momentum) * scale * sums`, element by element.
    fn ema_step(
        &self,
        momentum: f32,
        scale: f32,
        sums: &Self::Buffer,
        from: Span,
        running: &mut Self::Buffer,
        to: Span,
    ) -> Result<()>;

    /// `y = act(x)`.
    fn act_fwd(&self, act: Activation, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// `y = act(y + x)`, for tensors of one shape: the end of a residual block, where one branch has left its result in `y`.
    fn add_act(&self, act: Activation, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// The gradient before the activation from the one after it, set or added; `of` is the activation's output, or its input where
    /// the gradient [reads that](Activation::reads_input).
    fn act_bwd(
        &self,
        act: Activation,
        of: View<Self::Buffer>,
        dy: View<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// As [`act_bwd`](Backend::act_bwd), in place: for activations fused into the op before them.
    fn act_bwd_in_place(
        &self,
        act: Activation,
        of: View<Self::Buffer>,
        dy: ViewMut<Self::Buffer>,
    ) -> Result<()>;

    /// A batch of images out of a set that lies on the device, with its labels.
    ///
    /// `draws` is a table of [`ImageDraw`](crate::ImageDraw)s; place k of the batch `x`, and of its labels `to`, is row
    /// `first + k` of it.
    ///
    /// A draw that makes no sense, such as one of an image that the set lacks, is an error where the host sees the table.
    /// Elsewhere its image becomes NaN and its label `u32::MAX`, so that the loss shows it. When a recorded step is done
    /// again, a row past the end of the table is such a draw too.
    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet<Self::Bytes, Self::Ints, Self::Buffer>,
        draws: &Self::Ints,
        first: usize,
        x: ViewMut<Self::Buffer>,
        to: &mut Self::Ints,
    ) -> Result<()>;

    /// The largest element of each window.
    fn maxpool_fwd(&self, pool: &Pool2d, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// The gradient of the input, set or added. Of several largest elements the first in row-major order gets the
    /// gradient, as in PyTorch and TensorFlow.
    fn maxpool_bwd(
        &self,
        pool: &Pool2d,
        x: View<Self::Buffer>,
        y: View<Self::Buffer>,
        dy: View<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// The mean of each window, padding not counted.
    fn avgpool_fwd(&self, pool: &Pool2d, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// The gradient of the input, set or added.
    fn avgpool_bwd(
        &self,
        pool: &Pool2d,
        dy: View<Self::Buffer>,
        dx: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// `y = x * mask / (1 - rate)`, set or added: the forward pass on activations, the backward pass on gradients.
    fn dropout(
        &self,
        mask: &DropoutMask,
        x: View<Self::Buffer>,
        y: ViewMut<Self::Buffer>,
        write: Write,
    ) -> Result<()>;

    /// Softmax over the channels of each pixel. The output may also be in f32 where activations are in another format.
    fn softmax(&self, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// Softmax cross-entropy of `logits` (n vectors) against the first `n` of `labels`, or the first `n` [`Target`](crate::Target)s
    /// there where `xent` is mixed: then it is that of both labels, weighted.
    ///
    /// The span `metrics` of `sums` (2 elements) receives the sum of the losses and the number of samples whose largest
    /// logit (the first, among equals) is their label, or the one that counts more. A label outside of the classes gives a NaN loss.
    fn softmax_xent(
        &self,
        xent: &SoftmaxXent,
        logits: View<Self::Buffer>,
        labels: &Self::Ints,
        dlogits: Option<ViewMut<Self::Buffer>>,
        sums: &mut Self::Buffer,
        metrics: Span,
    ) -> Result<()>;

    /// Adds a step's metrics to those of the steps before it: `meter` (4 elements) holds the sum of the losses as a number
    /// and what rounding took from it (together exact to 48 bits), the sum of the correct answers, and the steps.
    ///
    /// A device that [`runs_ahead`](Backend::runs_ahead) ignores all steps of optimizers and running averages from the first
    /// loss on that is not finite, until the meter is uploaded anew: so nobody need look at each loss before the next
    /// step. The meter then holds that loss, and counts no further steps.
    fn meter(&self, sums: &Self::Buffer, metrics: Span, meter: &mut Self::Buffer) -> Result<()>;

    /// One step of an optimizer on runs of parameters, which don't overlap. All arenas are laid out alike, and nothing outside of the
    /// runs is touched.
    fn optimizer_step(
        &self,
        step: OptimizerStep<Self::Buffer>,
        params: &mut Self::Buffer,
        grads: &Self::Buffer,
        runs: &[ParamRun],
    ) -> Result<()>;

    /// A step of SGD on one run.
    fn sgd_step(
        &self,
        step: &SgdStep,
        params: &mut Self::Buffer,
        grads: &Self::Buffer,
        velocity: &mut Self::Buffer,
        at: Span,
    ) -> Result<()> {
        self.optimizer_step(OptimizerStep::Sgd(*step, velocity), params, grads, &[step.whole(at)])
    }

    /// A step of RMSprop on one run.
    fn rmsprop_step(
        &self,
        step: &RmspropStep,
        params: &mut Self::Buffer,
        grads: &Self::Buffer,
        mean_square: &mut Self::Buffer,
        at: Span,
    ) -> Result<()> {
        self.optimizer_step(OptimizerStep::Rmsprop(*step, mean_square), params, grads, &[step.whole(at)])
    }
}
