//! `trait Backend`: memory, and the operations outside of programs.

use crate::Cuda;
use crate::buffer::{self, Buffer};
use crate::format::Format;
use crate::layer::Layer;
use crate::memory;
use core::ops::Range;
use towers_optim::{Clip, Sam, UpdateRule};
use towers_program::{
    Backend, Bytes, CapturedGraph, Error, Executable, GradNorms, ImageSet, Ints, LoadImages, Memory, Op,
    ParamRun, Precision, Result, Span, StepArgs, Storage, View, ViewMut, Write,
};

impl Cuda {
    fn alloc_of(&self, len: usize, format: Format) -> Result<Storage> {
        let memory = self.zeros(len, format.bytes())?;
        Ok(Storage::new(Buffer::new(memory, len, format), len))
    }

    /// `len` zeros of so many bytes each.
    fn zeros(&self, len: usize, size: usize) -> Result<memory::Memory> {
        let too_many = || Error::OutOfMemory { bytes: usize::MAX, device: self.name_of() };
        memory::Memory::zeros(self.driver(), len.checked_mul(size).ok_or_else(too_many)?)
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        self.name_of()
    }

    fn model(&self) -> String {
        self.driver().model()
    }

    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn precision(&self) -> Precision {
        self.options().precision
    }

    fn alloc(&self, len: usize) -> Result<Storage> {
        self.alloc_of(len, Format::F32)
    }

    fn alloc_activations(&self, len: usize) -> Result<Storage> {
        self.alloc_of(len, self.format())
    }

    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        Ok(Ints::new(buffer::Ints { memory: self.zeros(len, 4)?, len }, len))
    }

    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        Ok(Bytes::new(buffer::Bytes { memory: memory::Memory::zeros(self.driver(), len)? }, len))
    }

    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()> {
        let to = self.ints("upload_ints", "the target", dst.on("upload_ints")?, src.len())?;
        // SAFETY: integers are bytes without gaps, in the order of the device's, as on every host that CUDA runs on.
        let bytes = unsafe { core::slice::from_raw_parts(src.as_ptr().cast(), size_of_val(src)) };
        // SAFETY: the target has room for them, as was checked.
        unsafe { self.driver().write(bytes, to) }
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()> {
        let dst = dst.on_mut::<buffer::Bytes>("upload_bytes")?;
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

    fn loss_scale(&self) -> Result<Option<[f32; 2]>> {
        self.read_loss_scale()
    }

    fn set_loss_scale(&self, [scale, good_steps]: [f32; 2]) -> Result<()> {
        match self.options().precision {
            Precision::Fp16 => self.reset_step_state(scale, good_steps as u32),
            _ => Ok(()),
        }
    }

    fn captures_graphs(&self) -> bool {
        !self.options().no_graph
    }

    /// A library's algorithm that can't be captured was replaced by another.
    fn capture(
        &self,
        work: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Option<Box<dyn CapturedGraph>>> {
        let dropped = self.dropped_algorithms();
        match self.capture(work) {
            Ok(graph) => Ok(Some(Box::new(graph))),
            Err(_) if self.dropped_algorithms() > dropped => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn prepare(&self, program: &Executable) -> Result<()> {
        let (batch, training) = (program.batch(), program.program().trains());
        for step in &program.program().steps {
            let (layer, x) = match &step.op {
                Op::Conv2dForward(op) => (Layer::Conv(&op.conv), op.bind(step)?.0.x),
                Op::Conv2dNormalized(op) => (Layer::Conv(&op.conv), op.bind(step)?.0.x),
                Op::LinearForward(op) => (Layer::Linear(&op.linear), op.bind(step)?.0.x),
                _ => continue,
            };
            self.op_prepare(layer, program.layout(x, batch).shape, training)?;
        }
        Ok(())
    }

    fn run(&self, program: &Executable, steps: Range<usize>, args: &StepArgs, memory: Memory) -> Result<()> {
        self.run_steps(program, steps, args, memory.on()?)
    }

    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()> {
        self.op_upload(src, dst.on_mut("upload")?, offset)
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [f32]) -> Result<()> {
        self.op_download(src.on("download")?, offset, dst)
    }

    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()> {
        let dst = dst.on_mut("fill")?;
        self.op(|| self.op_fill(value, dst, at))
    }

    fn copy(&self, x: View, y: ViewMut, write: Write) -> Result<()> {
        let (x, y) = (x.on("copy")?, y.on("copy")?);
        self.op(|| self.op_copy(1.0, x, y.as_view(), write))
    }

    fn finish_grads(&self, grads: &mut Storage, at: Span) -> Result<()> {
        let grads = grads.on_mut("finish_grads")?;
        self.op(|| self.op_finish_grads(grads, at))
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
        let (sums, running) = (sums.on("ema_step")?, running.on_mut("ema_step")?);
        self.op(|| self.op_ema_step(momentum, scale, sums, from, running, to))
    }

    fn load_images(
        &self,
        load: &LoadImages,
        set: ImageSet,
        draws: &Ints,
        first: usize,
        x: ViewMut,
        to: &mut Ints,
    ) -> Result<()> {
        self.op(|| self.op_load_images(load, set, draws, first, x, to))
    }

    fn softmax(&self, x: View, y: ViewMut) -> Result<()> {
        let (x, y) = (x.on("softmax")?, y.on("softmax")?);
        self.op(|| self.op_softmax(x, y.as_view()))
    }

    fn meter(&self, sums: &Storage, metrics: Span, meter: &mut Storage) -> Result<()> {
        let (sums, meter) = (sums.on("meter")?, meter.on_mut("meter")?);
        self.op(|| self.op_meter(sums, metrics, meter))
    }

    fn clip_grads(&self, clip: Clip, grads: &mut Storage, norms: &mut GradNorms) -> Result<()> {
        self.op(|| self.op_clip_grads(clip, grads, norms))
    }

    fn ascend(&self, sam: &Sam, params: &mut Storage, grads: &Storage, norms: &mut GradNorms) -> Result<()> {
        self.op(|| self.op_ascend(sam, params, grads, norms))
    }

    fn optimizer_step(
        &self,
        rule: &UpdateRule,
        lr: f32,
        params: &mut Storage,
        grads: &Storage,
        state: &mut [&mut Storage],
        runs: &[ParamRun],
    ) -> Result<()> {
        self.op(|| self.op_optimizer_step(rule, lr, params, grads, state, runs))
    }
}
