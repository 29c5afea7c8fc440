//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::source::Source;
use crate::{Buffer, Cuda};
use program::{
    Adam, Error, Moments, OptimizerStep, ParamRun, Precision, Result, Rmsprop, Sgd, Span, Storage, Velocity,
    WeightDecay,
};

pub(crate) const SOURCE: Source = Source {
    name: "optimizer.cu",
    text: include_str!("../../kernels/optimizer.cu"),
    kernels: &[
        "sgd_step",
        "rmsprop_step",
        "adam_step",
        "count_step",
        "find_overflow",
        "update_loss_scale",
        "ema_step",
        "meter",
    ],
};

const THREADS: u32 = 256;

/// Runs of one length in arenas of one layout, and their rule.
struct Run<const N: usize> {
    params: Ptr,
    grads: Ptr,
    memory: [Ptr; N],
    n: u64,
    lr_multiplier: f32,
    /// The weight decay that is added to gradients, and the one that is subtracted from parameters times the
    /// learning rate. One of them is 0.
    penalty: f32,
    shrink: f32,
    /// Numbers of a thread at once: 4 if all runs begin on 16 bytes.
    vector: u32,
    geometry: Geometry,
}

/// The arenas of an op, with one layout.
struct Arenas<'a, const N: usize> {
    op: &'static str,
    params: &'a Buffer,
    grads: &'a Buffer,
    /// The optimizer's state, with names.
    memory: [(&'static str, &'a Buffer); N],
    /// Whether it is used.
    remembers: bool,
}

fn arena(data: &Storage) -> Result<&Buffer> {
    data.on("optimizer_step")
}

impl Cuda {
    pub(crate) fn op_optimizer_step(
        &self,
        step: OptimizerStep,
        lr: f32,
        params: &mut Storage,
        grads: &Storage,
        runs: &[ParamRun],
    ) -> Result<()> {
        let (params, grads) = (arena(params)?, arena(grads)?);
        match step {
            OptimizerStep::Sgd(rule, velocity) => {
                let (memory, remembers) = ([("the velocity", arena(velocity)?)], rule.momentum != 0.0);
                let arenas = Arenas { op: "sgd_step", params, grads, memory, remembers };
                self.step_with(lr, &arenas, None, runs, |run| self.sgd(&rule, run))
            }
            OptimizerStep::Rmsprop(rule, mean_square) => {
                let memory = [("the mean squares", arena(mean_square)?)];
                let arenas = Arenas { op: "rmsprop_step", params, grads, memory, remembers: true };
                self.step_with(lr, &arenas, None, runs, |run| self.rmsprop(&rule, run))
            }
            OptimizerStep::Adam(rule, Moments { mean, mean_square, steps }) => {
                let op = "adam_step";
                let memory = [("the means", arena(mean)?), ("the mean squares", arena(mean_square)?)];
                let arenas = Arenas { op, params, grads, memory, remembers: true };
                let steps = self.run(op, "the number of steps", arena(steps)?, Span::new(0, 1))?;
                self.step_with(lr, &arenas, Some(steps), runs, |run| self.adam(&rule, steps, run))
            }
        }
    }

    fn sgd(&self, rule: &Sgd, run: Run<1>) -> Result<()> {
        let Run { params, grads, memory: [velocity], n, lr_multiplier, penalty, shrink, vector, geometry } =
            run;
        let (keras, nesterov) = (u32::from(rule.velocity == Velocity::Keras), u32::from(rule.nesterov));
        let args = args![
            self.step_state(),
            params,
            grads,
            velocity,
            n,
            lr_multiplier,
            rule.momentum,
            keras,
            nesterov,
            penalty,
            shrink,
            vector
        ];
        self.launch("sgd_step", geometry, args)
    }

    fn rmsprop(&self, rule: &Rmsprop, run: Run<1>) -> Result<()> {
        let Run { params, grads, memory: [squares], n, lr_multiplier, penalty, shrink, vector, geometry } =
            run;
        let (inside, outside) =
            if rule.epsilon_inside_root { (rule.epsilon, 0.0) } else { (0.0, rule.epsilon) };
        let args = args![
            self.step_state(),
            params,
            grads,
            squares,
            n,
            lr_multiplier,
            rule.rho,
            inside,
            outside,
            penalty,
            shrink,
            vector
        ];
        self.launch("rmsprop_step", geometry, args)
    }

    fn adam(&self, rule: &Adam, steps: Ptr, run: Run<2>) -> Result<()> {
        let Run {
            params,
            grads,
            memory: [mean, square],
            n,
            lr_multiplier,
            penalty,
            shrink,
            vector,
            geometry,
        } = run;
        let [(beta1, take1, log1), (beta2, take2, log2)] =
            [rule.beta1, rule.beta2].map(|beta| (beta as f32, (1.0 - beta) as f32, beta.ln() as f32));
        let args = args![
            self.step_state(),
            params,
            grads,
            mean,
            square,
            steps,
            n,
            lr_multiplier,
            beta1,
            take1,
            log1,
            beta2,
            take2,
            log2,
            rule.epsilon,
            u32::from(rule.epsilon_hat),
            penalty,
            shrink,
            vector
        ];
        self.launch("adam_step", geometry, args)
    }

    fn run_of<const N: usize>(&self, arenas: &Arenas<'_, N>, run: &ParamRun) -> Result<Run<N>> {
        let Arenas { op, params, grads, memory, remembers } = *arenas;
        let ParamRun { at, lr_multiplier, weight_decay } = *run;
        let used = if remembers { at } else { Span::new(0, 0) };
        let mut remembered = [Ptr(0); N];
        for (ptr, (what, buffer)) in remembered.iter_mut().zip(memory) {
            *ptr = self.run(op, what, buffer, used)?;
        }
        let params = self.run(op, "the parameters", params, at)?;
        let grads = self.run(op, "the gradients", grads, at)?;
        let vector =
            if [params, grads].iter().chain(&remembered).all(|p| p.0.is_multiple_of(16)) { 4 } else { 1 };
        let geometry = Geometry::line(self.blocks(at.len.div_ceil(vector as usize), THREADS), THREADS);
        let (penalty, shrink) = match weight_decay {
            WeightDecay::None => (0.0, 0.0),
            WeightDecay::Coupled(w) => (w, 0.0),
            WeightDecay::Decoupled(w) => (0.0, w),
        };
        let n = at.len as u64;
        Ok(Run { params, grads, memory: remembered, n, lr_multiplier, penalty, shrink, vector, geometry })
    }

    /// Runs the kernel of a step on each run. In half precision it checks all gradients first, and updates
    /// the loss scale afterwards. Counts the step in `steps`.
    fn step_with<const N: usize>(
        &self,
        lr: f32,
        arenas: &Arenas<'_, N>,
        steps: Option<Ptr>,
        runs: &[ParamRun],
        launch: impl Fn(Run<N>) -> Result<()>,
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
                let args = args![self.step_state_to_write(), run.grads, run.n, run.vector];
                self.launch("find_overflow", run.geometry, args)?;
            }
        }
        runs().try_for_each(|rule| launch(self.run_of(arenas, rule)?))?;
        if let Some(steps) = steps {
            self.launch("count_step", Geometry::line(1, 1), args![self.step_state(), steps])?;
        }
        if scaled {
            self.launch("update_loss_scale", Geometry::line(1, 1), args![self.step_state_to_write()])?;
        }
        self.refresh_compute_copies(arenas.params)
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
        self.launch("ema_step", geometry, args![self.step_state(), sums, to_running, n, momentum, share])?;
        // The average may be of weights, and replace them.
        self.refresh_compute_copies(running)
    }

    pub(crate) fn op_meter(&self, sums: &Buffer, metrics: Span, meter: &mut Buffer) -> Result<()> {
        let op = "meter";
        Error::check_len(op, "the metrics", metrics, 2)?;
        let metrics = self.run(op, "the metrics", sums, metrics)?;
        let meter = self.run(op, "the meter", meter, Span::new(0, 4))?;
        self.launch("meter", Geometry::line(1, 1), args![self.step_state_to_write(), metrics, meter])
    }
}
