use crate::storage::{
    Bytes, Ints, Storage, buf, buf_mut, bytes, bytes_mut, ints, ints_mut, view, view_mut, wrap, wrap_bytes,
    wrap_ints,
};
use crate::{
    Backend, Device, ImageSet, LoadImages, Moments, OptimizerStep, ParamRun, Result, Span, View, ViewMut,
    Write,
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

    fn copy(&self, x: View<Storage>, y: ViewMut<Storage>, write: Write) -> Result<()> {
        on!(self, d => d.copy(view(d, "copy", x)?, view_mut(d, "copy", y)?, write))
    }

    fn finish_grads(&self, grads: &mut Storage, at: Span) -> Result<()> {
        on!(self, d => d.finish_grads(buf_mut(d, "finish_grads", grads)?, at))
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

    fn softmax(&self, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        on!(self, d => d.softmax(view(d, "softmax", x)?, view_mut(d, "softmax", y)?))
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Storage>,
        lr: f32,
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
            d.optimizer_step(step, lr, buf_mut(d, op, params)?, buf(d, op, grads)?, runs)
        })
    }
}
