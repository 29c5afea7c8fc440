//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use crate::operand::u32_of;
use crate::{Buffer, Cuda};
use tensor_backend::{Error, Precision, Result, RmspropStep, SgdStep, Span, Velocity, WeightDecay};

pub(crate) const SOURCE: Source = Source {
    name: "optimizer.cu",
    text: include_str!("../../kernels/optimizer.cu"),
    kernels: &["sgd_step", "rmsprop_step", "find_overflow", "update_loss_scale", "ema_step", "meter"],
};

const THREADS: u32 = 256;

/// What a kernel adds to gradients per parameter, and takes off parameters per learning rate: one of them is 0.
fn penalty_and_shrink(decay: WeightDecay) -> (f32, f32) {
    match decay {
        WeightDecay::None => (0.0, 0.0),
        WeightDecay::Coupled(w) => (w, 0.0),
        WeightDecay::Decoupled(w) => (0.0, w),
    }
}

/// Runs of one length in arenas that are laid out alike.
struct Run {
    params: Ptr,
    grads: Ptr,
    state: Ptr,
    n: u64,
    /// Numbers that a thread takes at once: 4 where all runs begin on 16 bytes.
    vector: u32,
    geometry: Geometry,
}

impl Cuda {
    pub(crate) fn op_sgd_step(
        &self,
        step: &SgdStep,
        params: &mut Buffer,
        grads: &Buffer,
        velocity: &mut Buffer,
        at: Span,
    ) -> Result<()> {
        let op = "sgd_step";
        let used = if step.momentum == 0.0 { Span::new(0, 0) } else { at };
        let velocity = self.run(op, "the velocity", velocity, used)?;
        let run = self.arenas(op, params, grads, velocity, at)?;
        let (penalty, shrink) = penalty_and_shrink(step.weight_decay);
        let (keras, nesterov) = (u32::from(step.velocity == Velocity::Keras), u32::from(step.nesterov));
        let Run { params: p, grads: g, state, n, vector, .. } = run;
        let args =
            args![self.turn(), p, g, state, n, step.momentum, keras, nesterov, penalty, shrink, vector];
        self.step_with("sgd_step", step.lr, &run, args)?;
        self.refresh_mirror(params)
    }

    pub(crate) fn op_rmsprop_step(
        &self,
        step: &RmspropStep,
        params: &mut Buffer,
        grads: &Buffer,
        mean_square: &mut Buffer,
        at: Span,
    ) -> Result<()> {
        let op = "rmsprop_step";
        let mean_square = self.run(op, "the mean squares", mean_square, at)?;
        let run = self.arenas(op, params, grads, mean_square, at)?;
        let (penalty, shrink) = penalty_and_shrink(step.weight_decay);
        let (inside, outside) =
            if step.epsilon_inside_root { (step.epsilon, 0.0) } else { (0.0, step.epsilon) };
        let Run { params: p, grads: g, state, n, vector, .. } = run;
        let args = args![self.turn(), p, g, state, n, step.rho, inside, outside, penalty, shrink, vector];
        self.step_with("rmsprop_step", step.lr, &run, args)?;
        self.refresh_mirror(params)
    }

    fn arenas(
        &self,
        op: &'static str,
        params: &mut Buffer,
        grads: &Buffer,
        state: Ptr,
        at: Span,
    ) -> Result<Run> {
        let params = self.run(op, "the parameters", params, at)?;
        let grads = self.run(op, "the gradients", grads, at)?;
        let vector = if [params, grads, state].iter().all(|p| p.0.is_multiple_of(16)) { 4 } else { 1 };
        let geometry = Geometry::line(self.blocks(at.len.div_ceil(vector as usize), THREADS), THREADS);
        Ok(Run { params, grads, state, n: at.len as u64, vector, geometry })
    }

    /// Runs the kernel of a step, in half precision between a look at its gradients and what follows from that.
    fn step_with(&self, kernel: &'static str, lr: f32, run: &Run, args: &[crate::driver::Arg]) -> Result<()> {
        if run.n == 0 {
            return Ok(());
        }
        self.set_lr(lr)?;
        let scaled = self.options().precision == Precision::Fp16;
        if scaled {
            let args = args![self.turn(), run.grads, run.n, run.vector];
            self.launch("find_overflow", run.geometry, args)?;
        }
        self.launch(kernel, run.geometry, args)?;
        if scaled {
            self.launch("update_loss_scale", Geometry::line(1, 1), args![self.turn()])?;
        }
        Ok(())
    }

    pub(crate) fn op_ema_step(
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
        let sums = self.run(op, "the sums", sums, from)?;
        let running = self.run(op, "the running averages", running, to)?;
        let n = u32_of(op, "the number of running averages", to.len)?;
        if n == 0 {
            return Ok(());
        }
        let share = ((1.0 - f64::from(momentum)) * f64::from(scale)) as f32;
        let geometry = Geometry::line(self.blocks(to.len, THREADS), THREADS);
        self.launch("ema_step", geometry, args![self.turn(), sums, running, n, momentum, share])
    }

    pub(crate) fn op_meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        let op = "meter";
        Error::check_len(op, "the metrics", metrics, 2)?;
        let metrics = self.run(op, "the metrics", sums, metrics)?;
        let meter = self.run(op, "the meter", meter, Span::new(0, 4))?;
        self.launch("meter", Geometry::line(1, 1), args![self.turn(), metrics, meter])
    }
}
