//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use crate::operand::u32_of;
use crate::{Buffer, Cuda};
use tensor_backend::{Error, ParamRun, Precision, Result, RmspropStep, SgdStep, Span, Velocity, WeightDecay};

pub(crate) const SOURCE: Source = Source {
    name: "optimizer.cu",
    text: include_str!("../../kernels/optimizer.cu"),
    kernels: &["sgd_step", "rmsprop_step", "find_overflow", "update_loss_scale", "ema_step", "meter"],
};

const THREADS: u32 = 256;

/// Runs of one length in arenas that are laid out alike, and the rule for them.
struct Run {
    params: Ptr,
    grads: Ptr,
    state: Ptr,
    n: u64,
    lr_multiplier: f32,
    /// What is added to gradients per parameter, and taken off parameters per learning rate: one of them is 0.
    penalty: f32,
    shrink: f32,
    /// Numbers that a thread takes at once: 4 where all runs begin on 16 bytes.
    vector: u32,
    geometry: Geometry,
}

/// The arenas of an op, laid out alike.
struct Arenas<'a> {
    op: &'static str,
    params: &'a Buffer,
    grads: &'a Buffer,
    /// What the optimizer's memory is called.
    what: &'static str,
    state: &'a Buffer,
    /// Whether it is used.
    remembers: bool,
}

impl Cuda {
    pub(crate) fn op_sgd_steps(
        &self,
        step: &SgdStep,
        params: &mut Buffer,
        grads: &Buffer,
        velocity: &mut Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        let remembers = step.momentum != 0.0;
        let arenas =
            Arenas { op: "sgd_step", params, grads, what: "the velocity", state: velocity, remembers };
        let (keras, nesterov) = (u32::from(step.velocity == Velocity::Keras), u32::from(step.nesterov));
        self.step_with(step.lr, &arenas, runs, |run| {
            let Run { params, grads, state, n, lr_multiplier, penalty, shrink, vector, geometry } = run;
            let args = args![
                self.turn(),
                params,
                grads,
                state,
                n,
                lr_multiplier,
                step.momentum,
                keras,
                nesterov,
                penalty,
                shrink,
                vector
            ];
            self.launch("sgd_step", geometry, args)
        })
    }

    pub(crate) fn op_rmsprop_steps(
        &self,
        step: &RmspropStep,
        params: &mut Buffer,
        grads: &Buffer,
        mean_square: &mut Buffer,
        runs: &[ParamRun],
    ) -> Result<()> {
        let (what, state) = ("the mean squares", mean_square);
        let arenas = Arenas { op: "rmsprop_step", params, grads, what, state, remembers: true };
        let (inside, outside) =
            if step.epsilon_inside_root { (step.epsilon, 0.0) } else { (0.0, step.epsilon) };
        self.step_with(step.lr, &arenas, runs, |run| {
            let Run { params, grads, state, n, lr_multiplier, penalty, shrink, vector, geometry } = run;
            let args = args![
                self.turn(),
                params,
                grads,
                state,
                n,
                lr_multiplier,
                step.rho,
                inside,
                outside,
                penalty,
                shrink,
                vector
            ];
            self.launch("rmsprop_step", geometry, args)
        })
    }

    fn run_of(&self, arenas: &Arenas<'_>, rule: &ParamRun) -> Result<Run> {
        let Arenas { op, params, grads, what, state, remembers } = *arenas;
        let ParamRun { at, lr_multiplier, weight_decay } = *rule;
        let used = if remembers { at } else { Span::new(0, 0) };
        let state = self.run(op, what, state, used)?;
        let params = self.run(op, "the parameters", params, at)?;
        let grads = self.run(op, "the gradients", grads, at)?;
        let vector = if [params, grads, state].iter().all(|p| p.0.is_multiple_of(16)) { 4 } else { 1 };
        let geometry = Geometry::line(self.blocks(at.len.div_ceil(vector as usize), THREADS), THREADS);
        let (penalty, shrink) = match weight_decay {
            WeightDecay::None => (0.0, 0.0),
            WeightDecay::Coupled(w) => (w, 0.0),
            WeightDecay::Decoupled(w) => (0.0, w),
        };
        let n = at.len as u64;
        Ok(Run { params, grads, state, n, lr_multiplier, penalty, shrink, vector, geometry })
    }

    /// Runs the kernel of a step on each run; in half precision between a look at all of the gradients and what follows from that.
    fn step_with(
        &self,
        lr: f32,
        arenas: &Arenas<'_>,
        runs: &[ParamRun],
        launch: impl Fn(Run) -> Result<()>,
    ) -> Result<()> {
        let runs = || runs.iter().filter(|rule| rule.at.len > 0);
        if runs().next().is_none() {
            return Ok(());
        }
        self.set_lr(lr)?;
        let scaled = self.options().precision == Precision::Fp16;
        if scaled {
            for rule in runs() {
                let run = self.run_of(arenas, rule)?;
                let args = args![self.turn_to_write(), run.grads, run.n, run.vector];
                self.launch("find_overflow", run.geometry, args)?;
            }
        }
        runs().try_for_each(|rule| launch(self.run_of(arenas, rule)?))?;
        if scaled {
            self.launch("update_loss_scale", Geometry::line(1, 1), args![self.turn_to_write()])?;
        }
        self.refresh_mirror(arenas.params)
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
        let to_running = self.run(op, "the running averages", running, to)?;
        let n = u32_of(op, "the number of running averages", to.len)?;
        if n == 0 {
            return Ok(());
        }
        let share = ((1.0 - f64::from(momentum)) * f64::from(scale)) as f32;
        let geometry = Geometry::line(self.blocks(to.len, THREADS), THREADS);
        self.launch("ema_step", geometry, args![self.turn(), sums, to_running, n, momentum, share])?;
        // The average may be of weights, and take their place.
        self.refresh_mirror(running)
    }

    pub(crate) fn op_meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        let op = "meter";
        Error::check_len(op, "the metrics", metrics, 2)?;
        let metrics = self.run(op, "the metrics", sums, metrics)?;
        let meter = self.run(op, "the meter", meter, Span::new(0, 4))?;
        self.launch("meter", Geometry::line(1, 1), args![self.turn_to_write(), metrics, meter])
    }
}
