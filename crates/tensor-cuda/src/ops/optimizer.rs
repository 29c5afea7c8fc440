//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::driver::{Arg, Geometry, Ptr, args, u32_of};
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_optim::{Clip, UpdateRule, WeightDecay};
use towers_program::{ClippedGrads, Error, ParamRun, Precision, Result, Span, Storage};

pub(crate) const SOURCE: Source = Source {
    name: "optimizer.cu",
    text: include_str!("../../kernels/optimizer.cu"),
    kernels: &[
        "count_step",
        "clip_values",
        "grad_squares",
        "grad_norms",
        "clip_norms",
        "find_overflow",
        "update_loss_scale",
        "ema_step",
        "meter",
    ],
};

/// A kernel for each rule.
pub(crate) const RULES: Source =
    Source { name: "rules.cu", text: include_str!("../../kernels/rules.cu"), kernels: RULE_KERNELS };

const RULE_KERNELS: &[&str] = &{
    let mut all = [""; UpdateRule::STEPS.len() + UpdateRule::MEASURES.len()];
    let (steps, measures) = all.split_at_mut(UpdateRule::STEPS.len());
    steps.copy_from_slice(UpdateRule::STEPS);
    measures.copy_from_slice(UpdateRule::MEASURES);
    all
};

const THREADS: u32 = 256;

/// The norm of a tensor is made by blocks of about so many numbers, but no more blocks than this, which is enough for any GPU.
const NUMBERS_OF_A_BLOCK: usize = 4096;
const MOST_BLOCKS: usize = 128;

/// A run of parameters of one rule, as arguments that all kernels share.
struct Run {
    params: Ptr,
    grads: Ptr,
    /// The arenas of the rule's state; the others are null.
    state: [Ptr; 2],
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

const OP: &str = "optimizer_step";

fn arena(data: &Storage) -> Result<&Buffer> {
    data.on(OP)
}

impl Cuda {
    /// Runs the kernel of a step on each run. In half precision it checks all gradients first, and updates
    /// the loss scale afterwards.
    pub(crate) fn op_optimizer_step(
        &self,
        rule: &UpdateRule,
        lr: f32,
        params: &mut Storage,
        grads: &Storage,
        state: &mut [&mut Storage],
        runs: &[ParamRun],
    ) -> Result<()> {
        let (names, params) = (rule.state(), arena(params)?);
        Error::check_len(OP, "the state, in arenas,", Span::new(0, state.len()), rule.arrays())?;
        let (arenas, counted) = state.split_at(names.len());
        let steps = match counted.first() {
            Some(steps) => self.run(OP, "the number of steps", arena(steps)?, Span::new(0, 1))?,
            None => Ptr(0),
        };
        let runs = runs.iter().filter(|run| run.at.len > 0);
        let runs = runs.map(|run| self.run_of(params, arena(grads)?, names, arenas, run));
        let runs = runs.collect::<Result<Vec<Run>>>()?;
        if runs.is_empty() {
            return Ok(());
        }
        self.set_lr(lr)?;
        let scaled = self.options().precision == Precision::Fp16;
        if scaled {
            for run in &runs {
                let args = args![self.step_state_to_write(), run.grads, run.n, run.vector];
                self.launch("find_overflow", run.geometry, args)?;
            }
        }
        let constants: Vec<Arg> = rule.constants().into_iter().map(Arg::from).collect();
        let sums = if rule.of_tensors() { self.scratch(16 * MOST_BLOCKS)? } else { Ptr(0) };
        for run in &runs {
            let blocks = (run.n as usize).div_ceil(NUMBERS_OF_A_BLOCK).clamp(1, MOST_BLOCKS) as u32;
            if rule.of_tensors() {
                let mut args = args![
                    self.step_state(),
                    run.params,
                    run.grads,
                    run.state[0],
                    run.state[1],
                    steps,
                    run.n,
                    run.penalty,
                    run.shrink,
                    sums
                ]
                .to_vec();
                args.extend_from_slice(&constants);
                self.launch(rule.measure_name(), Geometry::line(blocks, THREADS), &args)?;
            }
            let mut args = args![
                self.step_state(),
                run.params,
                run.grads,
                run.state[0],
                run.state[1],
                steps,
                run.n,
                run.lr_multiplier,
                run.penalty,
                run.shrink,
                run.vector
            ]
            .to_vec();
            args.extend_from_slice(&constants);
            if rule.of_tensors() {
                args.extend_from_slice(args![sums, blocks]);
            }
            self.launch(rule.step_name(), run.geometry, &args)?;
        }
        if rule.counts_steps() {
            self.launch("count_step", Geometry::line(1, 1), args![self.step_state(), steps])?;
        }
        if scaled {
            self.launch("update_loss_scale", Geometry::line(1, 1), args![self.step_state_to_write()])?;
        }
        self.refresh_compute_copies(params)
    }

    fn run_of(
        &self,
        params: &Buffer,
        grads: &Buffer,
        names: &[&'static str],
        arenas: &[&mut Storage],
        run: &ParamRun,
    ) -> Result<Run> {
        let ParamRun { at, lr_multiplier, weight_decay } = *run;
        let params = self.run(OP, "the parameters", params, at)?;
        let grads = self.run(OP, "the gradients", grads, at)?;
        let mut state = [Ptr(0); 2];
        for ((ptr, name), data) in state.iter_mut().zip(names).zip(arenas) {
            *ptr = self.run(OP, name, arena(data)?, at)?;
        }
        let aligned = [params, grads].iter().chain(&state).all(|p| p.0.is_multiple_of(16));
        let vector = if aligned { 4 } else { 1 };
        let geometry = Geometry::line(self.blocks(at.len.div_ceil(vector as usize), THREADS), THREADS);
        let (penalty, shrink) = match weight_decay {
            WeightDecay::None => (0.0, 0.0),
            WeightDecay::Coupled(w) => (w, 0.0),
            WeightDecay::Decoupled(w) => (0.0, w),
        };
        let n = at.len as u64;
        Ok(Run { params, grads, state, n, lr_multiplier, penalty, shrink, vector, geometry })
    }

    pub(crate) fn op_clip_grads(&self, grads: &mut Storage, clipped: &mut ClippedGrads) -> Result<()> {
        let op = "clip_grads";
        let ClippedGrads { clip, at, table, norms } = clipped;
        let parts = u32_of(op, "the number of gradients", at.len())?;
        let grads: &Buffer = grads.on(op)?;
        at.iter().try_for_each(|at| self.run(op, "a gradient", grads, *at).map(drop))?;
        let len = grads.len() as u64;
        let grads = self.run(op, "the gradients", grads, Span::new(0, 0))?;
        let table = self.ints(op, "their places", table.on(op)?, 2 * at.len())?;
        let norms = self.run(op, "the norms", norms.on(op)?, Span::new(0, at.len()))?;
        let longest = at.iter().map(|at| at.len).max().unwrap_or(0);
        let blocks = longest.div_ceil(NUMBERS_OF_A_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        let grid = Geometry { grid: [blocks, parts, 1], ..Geometry::line(1, THREADS) };
        if let Clip::Value(limit) = clip {
            return self.launch("clip_values", grid, args![self.step_state(), grads, len, table, *limit]);
        }
        let sums = 8 * at.len() * blocks as usize;
        let scratch = self.scratch(sums + 4 * at.len())?;
        let (sums, factors) = (scratch, scratch.offset(sums));
        self.launch("grad_squares", grid, args![grads, len, table, sums])?;
        let global = u32::from(matches!(clip, Clip::GlobalNorm(_)));
        let of_norms = args![self.step_state(), sums, blocks, parts, norms, factors, clip.limit(), global];
        self.launch("grad_norms", Geometry::line(1, THREADS), of_norms)?;
        self.launch("clip_norms", grid, args![grads, len, table, factors])
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
