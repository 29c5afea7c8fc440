//! `trait Backend`: memory, and the work beside programs.

use crate::buffer::Format;
use crate::memory::Memory;
use crate::{Buffer, Bytes, Cuda, Ints};
use program::{
    Backend, Error, ImageSet, LoadImages, OptimizerStep, ParamRun, Result, Span, View, ViewMut, Write,
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

    fn copy(&self, x: View<Buffer>, y: ViewMut<Buffer>, write: Write) -> Result<()> {
        self.op(|| self.op_copy(1.0, x, y.as_view(), write))
    }

    fn finish_grads(&self, grads: &mut Buffer, at: Span) -> Result<()> {
        self.op(|| self.op_finish_grads(grads, at))
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

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        self.op(|| self.op_softmax(x, y.as_view()))
    }
    fn meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        self.op(|| self.op_meter(sums, metrics, meter))
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        lr: f32,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        self.op(|| self.op_optimizer_step(step, lr, params, grads, runs))
    }
}
