use crate::{
    Bytes, CapturedGraph, Executable, GradNorms, ImageSet, Ints, LoadImages, Memory, ParamRun, Precision,
    Result, Span, StepArgs, Storage, View, ViewMut,
};
use core::any::Any;
use core::fmt::Debug;
use core::ops::Range;
use towers_optim::{Clip, Sam, UpdateRule};

/// Whether an op replaces what its output held or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// `y = ...`
    Set,
    /// `y += ...`: the gradient of a tensor that several layers read.
    Add,
}

/// A kind of device: its memory, how it runs programs, and the work that is no part of one: loading images, optimizers, averages,
/// class probabilities.
///
/// All operands live on this device. Outputs are `&mut` and the caller's own: nothing allocates except the `alloc`s. Results
/// are a function of the operands alone: the same bits for any number of threads.
///
/// `params`, `grads` and their like are flat arenas in which a [`Span`] marks one tensor. Every method checks its operands'
/// sizes and returns an error that names what does not fit.
pub trait Backend: Any + Debug + Send + Sync {
    /// The device's name, for messages.
    fn name(&self) -> String;

    /// The name without the device's number: the same for all devices of a kind in one machine.
    fn model(&self) -> String {
        self.name()
    }

    /// The name that `--device` and benchmarks use.
    fn kind(&self) -> &'static str;

    /// How many host threads compute.
    fn threads(&self) -> usize {
        1
    }

    /// The number formats of its arithmetic.
    fn precision(&self) -> Precision {
        Precision::Fp32
    }

    /// A buffer of `len` zeros.
    fn alloc(&self, len: usize) -> Result<Storage>;

    /// A buffer of `len` zeros for activations and their gradients: in the device's number format for these, where that
    /// is another than f32. By default it is the same.
    fn alloc_activations(&self, len: usize) -> Result<Storage> {
        self.alloc(len)
    }

    /// `len` zeros of integers.
    fn alloc_ints(&self, len: usize) -> Result<Ints>;

    /// `len` zeros of bytes.
    fn alloc_bytes(&self, len: usize) -> Result<Bytes>;

    /// Copies `src` to the device, into `dst` from element `offset` on.
    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()>;

    /// Copies `src` to the device, to the start of `dst`.
    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()>;

    /// Copies `src` to the device, into `dst` from byte `offset` on.
    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()>;

    /// Copies elements of `src` from `offset` on from the device, after all earlier work.
    fn download(&self, src: &Storage, offset: usize, dst: &mut [f32]) -> Result<()>;

    /// Waits until everything that was asked for is done. By default it is when ops return.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Whether ops return before their work is done, so that to read a number means to wait. By default not.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Whether memory is scarcer here than time for a cheap pass over it. Then training
    /// [recomputes](crate::passes::recompute) outputs of normalizations in the backward pass instead of
    /// keeping them, and memory is reused as early as possible. By default not.
    fn recomputes(&self) -> bool {
        false
    }

    /// What of a training's state the device keeps by itself: in half precision the factor on the loss, and the steps since
    /// it changed. `None` on other devices and in other formats.
    fn loss_scale(&self) -> Result<Option<[f32; 2]>> {
        Ok(None)
    }

    /// Goes on with the [`loss_scale`](Backend::loss_scale) of another time. Does nothing where there is none.
    fn set_loss_scale(&self, _state: [f32; 2]) -> Result<()> {
        Ok(())
    }

    /// Whether work can be written down, to be done again at the cost of one call. By default not.
    fn captures_graphs(&self) -> bool {
        false
    }

    /// Writes `work` down, which is not done meanwhile: see [`GraphCache`](crate::GraphCache). `None` if something of the device gave way
    /// that can't be written down: then the work must run once more first.
    fn capture(
        &self,
        _work: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Option<Box<dyn CapturedGraph>>> {
        Ok(None)
    }

    /// Plans the steps of a program, and reserves their scratch memory.
    ///
    /// # Errors
    /// If there is too little memory.
    fn prepare(&self, program: &Executable) -> Result<()>;

    /// Runs some steps of a program, in order. [Exchanges](crate::Op::is_exchange) are the caller's: here they do nothing.
    ///
    /// # Errors
    /// If an arena is too small, or the device fails.
    fn run(&self, program: &Executable, steps: Range<usize>, args: &StepArgs, memory: Memory) -> Result<()>;

    /// Sets every element of a run.
    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()>;

    /// `y = x` or `y += x`, for tensors of one shape.
    fn copy(&self, x: View, y: ViewMut, write: Write) -> Result<()>;

    /// Completes the gradients of the weights in the run `at` of `grads`. Until then a device may keep a
    /// program's results in another form, to bring all of it into place at once. By default this does
    /// nothing.
    fn finish_grads(&self, _grads: &mut Storage, _at: Span) -> Result<()> {
        Ok(())
    }

    /// `running = momentum * running + (1 - momentum) * scale * sums`, element by element.
    fn ema_step(
        &self,
        momentum: f32,
        scale: f32,
        sums: &Storage,
        from: Span,
        running: &mut Storage,
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
        set: ImageSet,
        draws: &Ints,
        first: usize,
        x: ViewMut,
        to: &mut Ints,
    ) -> Result<()>;

    /// Softmax over the channels of each pixel. The output may also be in f32 where activations are in another format.
    fn softmax(&self, x: View, y: ViewMut) -> Result<()>;

    /// Adds a step's metrics to those of the steps before it. `meter` has 4 elements: the sum of the losses
    /// and its rounding error (together exact to 48 bits), the sum of the correct answers, and the steps.
    ///
    /// On a device that [`runs_ahead`](Backend::runs_ahead), a loss that is not finite disables all later
    /// steps of optimizers and running averages, until the meter is uploaded anew. So the host need not check
    /// each loss before the next step. The meter then holds that loss, and counts no further steps.
    fn meter(&self, sums: &Storage, metrics: Span, meter: &mut Storage) -> Result<()>;

    /// Clips gradients in place: see [`Clip`]. Where they carry a loss scale, limits and norms do not.
    fn clip_grads(&self, clip: Clip, grads: &mut Storage, norms: &mut GradNorms) -> Result<()>;

    /// Moves parameters to where the loss is higher: see [`Sam::ascend`]. Their places are those of the gradients. Where gradients
    /// carry a loss scale, the distance and norms do not. Those that are not finite then move nothing, and skip the next
    /// [`optimizer_step`](Backend::optimizer_step).
    fn ascend(&self, sam: &Sam, params: &mut Storage, grads: &Storage, norms: &mut GradNorms) -> Result<()>;

    /// One step of a rule at learning rate `lr`, on runs of parameters that don't overlap. A run has its weight decay, and may have
    /// another rule. `state` has as many arenas as the rule with the most names in [`UpdateRule::state`]. If a rule
    /// [counts its steps](UpdateRule::counts_steps) and has a run to step over, 1 element for their number follows. All
    /// arenas are laid out alike, and nothing outside of the runs is touched. A rule with less state uses the first arenas.
    fn optimizer_step(
        &self,
        rule: &UpdateRule,
        lr: f32,
        params: &mut Storage,
        grads: &Storage,
        state: &mut [&mut Storage],
        runs: &[ParamRun],
    ) -> Result<()>;
}
