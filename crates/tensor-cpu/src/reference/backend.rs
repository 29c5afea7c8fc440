//! `trait Backend`: memory, and the work beside programs.

use super::operand::pair;
use super::run;
use super::{Reference, elementwise, images, optimizer, softmax};
use crate::buffer::filled;
use crate::operand::{norms_of, optimizer_step, run, run_mut};
use core::ops::Range;
use towers_optim::{Clip, Sam, UpdateRule};
use towers_program::{
    Backend, Bytes, Error, Executable, GradNorms, ImageSet, Ints, LoadImages, Memory, ParamRun, Result, Span,
    StepArgs, Storage, View, ViewMut, Write,
};

/// Tensors in f64.
type Buffer = Vec<f64>;

impl Backend for Reference {
    fn name(&self) -> String {
        "the f64 reference".to_owned()
    }

    fn kind(&self) -> &'static str {
        "reference"
    }

    fn alloc(&self, len: usize) -> Result<Storage> {
        Ok(Storage::new(filled(self, len, 0.0_f64)?, len))
    }

    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        Ok(Ints::new(filled(self, len, 0_u32)?, len))
    }

    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        Ok(Bytes::new(filled(self, len, 0_u8)?, len))
    }

    /// So that it is checked as the CPU is.
    fn recomputes(&self) -> bool {
        true
    }

    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()> {
        let dst = dst.on_mut::<Buffer>("upload")?;
        let dst = run_mut("upload", "the target", dst, Span::new(offset, src.len()))?;
        dst.iter_mut().zip(src).for_each(|(dst, &src)| *dst = f64::from(src));
        Ok(())
    }

    fn upload_ints(&self, src: &[u32], dst: &mut Ints) -> Result<()> {
        let dst = dst.on_mut::<Vec<u32>>("upload_ints")?;
        run_mut("upload_ints", "the target", dst, Span::new(0, src.len()))?.copy_from_slice(src);
        Ok(())
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut Bytes, offset: usize) -> Result<()> {
        let dst = dst.on_mut::<Vec<u8>>("upload_bytes")?;
        run_mut("upload_bytes", "the target", dst, Span::new(offset, src.len()))?.copy_from_slice(src);
        Ok(())
    }

    fn download(&self, src: &Storage, offset: usize, dst: &mut [f32]) -> Result<()> {
        let src = src.on::<Buffer>("download")?;
        let src = run("download", "the source", src, Span::new(offset, dst.len()))?;
        dst.iter_mut().zip(src).for_each(|(dst, &src)| *dst = src as f32);
        Ok(())
    }

    fn prepare(&self, _: &Executable) -> Result<()> {
        Ok(())
    }

    fn run(&self, program: &Executable, steps: Range<usize>, args: &StepArgs, memory: Memory) -> Result<()> {
        let Memory { activations, statistics, params, grads, averages, labels } =
            memory.on::<Buffer, Vec<u32>>()?;
        let lens =
            [activations.len(), statistics.len(), params.len(), grads.len(), averages.len(), labels.len()];
        program.check_memory(args, lens)?;
        for k in steps {
            let step = program.step(k);
            let memory = Memory {
                activations: &mut *activations,
                statistics: &mut *statistics,
                params,
                grads: &mut *grads,
                averages,
                labels,
            };
            run::run(program, step, args, memory)?;
        }
        Ok(())
    }

    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()> {
        run_mut("fill", "the target", dst.on_mut::<Buffer>("fill")?, at)?.fill(f64::from(value));
        Ok(())
    }

    fn copy(&self, x: View, y: ViewMut, mode: Write) -> Result<()> {
        pair("copy", x, y).map(|(x, y)| elementwise::copy(1.0, x, y, mode))
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
        let op = "ema_step";
        let (sums, running) = (sums.on::<Buffer>(op)?, running.on_mut::<Buffer>(op)?);
        Error::check_len(op, "the running averages", to, from.len)?;
        let sums = run(op, "the sums", sums, from)?;
        let running = run_mut(op, "the running averages", running, to)?;
        optimizer::ema(momentum.into(), scale.into(), sums, running);
        Ok(())
    }

    fn meter(&self, sums: &Storage, metrics: Span, meter: &mut Storage) -> Result<()> {
        let op = "meter";
        let (sums, meter) = (sums.on::<Buffer>(op)?, meter.on_mut::<Buffer>(op)?);
        Error::check_len(op, "the metrics", metrics, 2)?;
        let metrics = run(op, "the metrics", sums, metrics)?;
        optimizer::meter(metrics, run_mut(op, "the meter", meter, Span::new(0, 4))?);
        Ok(())
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
        images::load(load, set, draws, first, x, to)
    }

    fn softmax(&self, x: View, y: ViewMut) -> Result<()> {
        pair("softmax", x, y).map(|(x, y)| softmax::probabilities(x, y))
    }

    fn clip_grads(&self, clip: Clip, grads: &mut Storage, norms: &mut GradNorms) -> Result<()> {
        let grads = grads.on_mut::<Buffer>("clip_grads")?;
        let (at, norms) = norms_of::<_, Buffer>("clip_grads", norms, grads.len())?;
        optimizer::clip(clip, grads, at, norms);
        Ok(())
    }

    fn ascend(&self, sam: &Sam, params: &mut Storage, grads: &Storage, norms: &mut GradNorms) -> Result<()> {
        let (params, grads) = (params.on_mut::<Buffer>("ascend")?, grads.on::<Buffer>("ascend")?);
        let (at, norms) = norms_of::<_, Buffer>("ascend", norms, params.len().min(grads.len()))?;
        optimizer::ascend(sam, params, grads, at, norms);
        Ok(())
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
        optimizer_step::<_, Buffer>(rule, lr, params, grads, state, runs, optimizer::update)
    }
}
