//! `trait Backend`: memory, and the work beside programs.

use crate::buffer::filled;
use crate::element::{Element, Format, typed};
use crate::operand::{alike, optimizer_step, run, run_mut, run_of, run_of_mut, tensors, write};
use crate::{Buffer, Cpu, elementwise, images, optimizer, softmax};
use program::{
    Backend, Error, ImageSet, LoadImages, OptimizerStep, ParamRun, Result, Span, View, ViewMut, Write,
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

    fn copy(&self, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        alike("copy", x, &y)?;
        tensors!("copy", x: "the input" => y: "the output"; {
            elementwise::copy(self.pool(), 1.0, x, y, mode);
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

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        alike("softmax", x, &y)?;
        typed!(y.data, |O| {
            let y = write::<O>("softmax", "the output", y)?;
            tensors!("softmax", x: "the input"; softmax::probabilities(x, y))
        })
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        lr: f32,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        optimizer_step(self.pool(), step, lr, params, grads, runs)
    }
}
