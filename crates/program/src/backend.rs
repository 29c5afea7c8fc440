use crate::{ImageSet, LoadImages, OptimizerStep, ParamRun, Result, Span, View, ViewMut};

/// Whether an op replaces what its output held or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// `y = ...`
    Set,
    /// `y += ...`: the gradient of a tensor that several layers read.
    Add,
}

/// The memory of a device, and the work that is no part of a program: loading images, optimizers, averages, class probabilities.
///
/// All operands live on this device. Outputs are `&mut` and the caller's own: nothing allocates except the `alloc`s. Results
/// are a function of the operands alone: the same bits for any number of threads.
///
/// `params`, `grads` and their like are flat arenas in which a [`Span`] marks one tensor. Every method checks its operands'
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

    /// Whether memory is dearer here than a cheap pass over it: training then [recomputes](crate::passes::recompute) outputs of
    /// normalizations in the backward pass instead of keeping them, and memory is used again as soon as it can be. By default not.
    fn recomputes(&self) -> bool {
        false
    }

    /// Sets every element of a run.
    fn fill(&self, value: f32, dst: &mut Self::Buffer, at: Span) -> Result<()>;

    /// `y = x` or `y += x`, for tensors of one shape.
    fn copy(&self, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>, write: Write) -> Result<()>;

    /// Completes the gradients of the weights that lie in the run `at` of `grads`: until then a device may keep what a program computed
    /// in a form of its own, to bring all of it into place at once. By default there is nothing to do.
    fn finish_grads(&self, _grads: &mut Self::Buffer, _at: Span) -> Result<()> {
        Ok(())
    }

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

    /// A batch of images out of a set that lies on the device, with its labels.
    ///
    /// `draws` is a table of [`ImageDraw`](crate::ImageDraw)s, a row for each image of an epoch; place k of the batch `x`, and of its labels `to`, is row
    /// `first + k` of it.
    ///
    /// An image that the set lacks, or a place outside of the image, is an error where the host sees the table. Elsewhere
    /// such an image becomes NaN and its label `u32::MAX`, and such a place NaN, so that the loss shows it. When a recorded
    /// step is done again, a row past the end of the table is an image that the set lacks.
    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet<Self::Bytes, Self::Ints, Self::Buffer>,
        draws: &Self::Ints,
        first: usize,
        x: ViewMut<Self::Buffer>,
        to: &mut Self::Ints,
    ) -> Result<()>;

    /// Softmax over the channels of each pixel. The output may also be in f32 where activations are in another format.
    fn softmax(&self, x: View<Self::Buffer>, y: ViewMut<Self::Buffer>) -> Result<()>;

    /// Adds a step's metrics to those of the steps before it: `meter` (4 elements) holds the sum of the losses as a number
    /// and what rounding took from it (together exact to 48 bits), the sum of the correct answers, and the steps.
    ///
    /// A device that [`runs_ahead`](Backend::runs_ahead) ignores all steps of optimizers and running averages from the first
    /// loss on that is not finite, until the meter is uploaded anew: so nobody need look at each loss before the next
    /// step. The meter then holds that loss, and counts no further steps.
    fn meter(&self, sums: &Self::Buffer, metrics: Span, meter: &mut Self::Buffer) -> Result<()>;

    /// One step of an optimizer at learning rate `lr`, on runs of parameters, which don't overlap and say their weight decay. All arenas are laid out alike, and nothing outside of the
    /// runs is touched.
    fn optimizer_step(
        &self,
        step: OptimizerStep<Self::Buffer>,
        lr: f32,
        params: &mut Self::Buffer,
        grads: &Self::Buffer,
        runs: &[ParamRun],
    ) -> Result<()>;
}
