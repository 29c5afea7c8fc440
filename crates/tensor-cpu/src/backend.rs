//! `trait Backend`: memory, and the work beside programs.

use crate::buffer::filled;
use crate::element::{Bf16, Element, Format, typed};
use crate::operand::{alike, norms_of, optimizer_step, run, run_mut, run_of, run_of_mut, tensors, write};
use crate::{Buffer, Cpu, ascent, elementwise, images, muon, optimizer, scratch, softmax};
use core::ops::Range;
use towers_optim::{Clip, Sam, UpdateRule};
use towers_program::{
    Backend, Bytes, Error, Executable, GradNorms, ImageSet, Ints, LoadImages, Memory, ParamRun, Precision,
    Result, Span, StepArgs, Storage, View, ViewMut, Write,
};

impl Backend for Cpu {
    fn name(&self) -> String {
        let bf16 = if self.is_bf16() { ", bf16" } else { "" };
        match self.threads() {
            1 => format!("the CPU (1 thread{bf16})"),
            threads => format!("the CPU ({threads} threads{bf16})"),
        }
    }

    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn threads(&self) -> usize {
        self.pool().count()
    }

    fn precision(&self) -> Precision {
        if self.is_bf16() { Precision::Bf16 } else { Precision::Fp32 }
    }

    fn alloc(&self, len: usize) -> Result<Storage> {
        Ok(Storage::on_host(Buffer::try_zeros(self, len, Format::F32)?))
    }

    fn alloc_activations(&self, len: usize) -> Result<Storage> {
        let format = if self.is_bf16() { Format::Bf16 } else { Format::F32 };
        Ok(Storage::new(Buffer::try_zeros(self, len, format)?, len))
    }

    fn alloc_ints(&self, len: usize) -> Result<Ints> {
        Ok(Ints::new(filled(self, len, 0_u32)?, len))
    }

    fn alloc_bytes(&self, len: usize) -> Result<Bytes> {
        Ok(Bytes::new(filled(self, len, 0_u8)?, len))
    }

    /// A network's convolutions take many times as long as a pass over their outputs.
    fn recomputes(&self) -> bool {
        true
    }

    fn upload(&self, src: &[f32], dst: &mut Storage, offset: usize) -> Result<()> {
        let dst = dst.on_mut::<Buffer>("upload")?;
        let at = Span::new(offset, src.len());
        typed!(dst, |E| {
            let dst = run_of_mut::<E>("upload", "the target", dst, at)?;
            dst.iter_mut().zip(src).for_each(|(dst, &x)| *dst = E::of(x));
        });
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
        let at = Span::new(offset, dst.len());
        typed!(src, |E| {
            let src = run_of::<E>("download", "the source", src, at)?;
            dst.iter_mut().zip(src).for_each(|(dst, x)| *dst = x.get());
        });
        Ok(())
    }

    fn prepare(&self, program: &Executable) -> Result<()> {
        scratch::reserve(self, program)
    }

    fn run(&self, program: &Executable, steps: Range<usize>, args: &StepArgs, memory: Memory) -> Result<()> {
        let memory = memory.on()?;
        if self.is_bf16() {
            crate::run::run::<Bf16>(self, program, steps, args, memory)
        } else {
            crate::run::run::<f32>(self, program, steps, args, memory)
        }
    }

    fn fill(&self, value: f32, dst: &mut Storage, at: Span) -> Result<()> {
        let dst = dst.on_mut::<Buffer>("fill")?;
        typed!(dst, |E| run_of_mut("fill", "the target", dst, at).map(|dst| dst.fill(E::of(value))))
    }

    fn copy(&self, x: View, y: ViewMut, mode: Write) -> Result<()> {
        let (x, y) = (x.on("copy")?, y.on("copy")?);
        alike("copy", x, &y)?;
        tensors!("copy", x: "the input" => y: "the output"; {
            elementwise::copy(self, 1.0, x, y, mode);
        })
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
        optimizer::ema(momentum, scale, sums, run_mut(op, "the running averages", running, to)?);
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
        images::load(self.pool(), load, set, draws, first, x, to)
    }

    fn softmax(&self, x: View, y: ViewMut) -> Result<()> {
        let (x, y) = (x.on("softmax")?, y.on("softmax")?);
        alike("softmax", x, &y)?;
        typed!(y.data, |O| {
            let y = write::<O>("softmax", "the output", y)?;
            tensors!("softmax", x: "the input"; softmax::probabilities(x, y))
        })
    }

    fn clip_grads(&self, clip: Clip, grads: &mut Storage, norms: &mut GradNorms) -> Result<()> {
        let grads = grads.on_mut::<Buffer>("clip_grads")?;
        let (at, norms) = norms_of::<_, Buffer>("clip_grads", norms, grads.len())?;
        optimizer::clip(self, clip, grads, at, norms);
        Ok(())
    }

    fn ascend(&self, sam: &Sam, params: &mut Storage, grads: &Storage, norms: &mut GradNorms) -> Result<()> {
        let (params, grads) = (params.on_mut::<Buffer>("ascend")?, grads.on::<Buffer>("ascend")?);
        let (at, norms) = norms_of::<_, Buffer>("ascend", norms, params.len().min(grads.len()))?;
        ascent::ascend(self, sam, params, grads, at, norms);
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
        optimizer_step::<_, Buffer>(
            rule,
            lr,
            params,
            grads,
            state,
            runs,
            |rule, lr, t, shape, params, grads, state| match (rule, state) {
                (UpdateRule::Muon(muon), [velocity, _]) => {
                    muon::step(self, &muon, lr, shape, params, grads, velocity);
                }
                (rule, state) => optimizer::update(self, rule, lr, t, params, grads, state),
            },
        )
    }
}
