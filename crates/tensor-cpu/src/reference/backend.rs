//! `trait Backend`: memory, and the work beside programs.

use super::operand::pair;
use super::{Reference, elementwise, images, optimizer, softmax};
use crate::buffer::filled;
use crate::operand::{optimizer_step, run, run_mut};
use program::{
    Backend, Error, ImageSet, LoadImages, OptimizerStep, ParamRun, Result, Span, View, ViewMut, Write,
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

    fn copy(&self, x: View<Buffer>, y: ViewMut<Buffer>, mode: Write) -> Result<()> {
        pair("copy", x, y).map(|(x, y)| elementwise::copy(1.0, x, y, mode))
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

    fn softmax(&self, x: View<Buffer>, y: ViewMut<Buffer>) -> Result<()> {
        pair("softmax", x, y).map(|(x, y)| softmax::probabilities(x, y))
    }

    fn optimizer_step(
        &self,
        step: OptimizerStep<Buffer>,
        lr: f32,
        params: &mut Buffer,
        grads: &Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        optimizer_step(&optimizer::Plain, step, lr, params, grads, runs)
    }
}
