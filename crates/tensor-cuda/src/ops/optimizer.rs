//! Steps of optimizers and running averages over flat arenas, and the meter of the losses.

use crate::driver::{Arg, Geometry, Ptr, args, u32_of};
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_optim::{Clip, Form, Muon, Sam, UpdateRule, WeightDecay};
use towers_program::{Error, GradNorms, ParamRun, Precision, Result, Span, Storage};

pub(crate) const SOURCE: Source = Source {
    name: "optimizer.cu",
    text: include_str!("../../kernels/optimizer.cu"),
    kernels: &[
        "count_step",
        "clip_values",
        "grad_squares",
        "grad_norms",
        "clip_norms",
        "ascent_factor",
        "ascend",
        "find_overflow",
        "update_loss_scale",
        "ema_step",
        "meter",
    ],
};

/// A kernel for each rule, another for each rule of tensors, and those of Muon's products.
pub(crate) const RULES: Source =
    Source { name: "rules.cu", text: include_str!("../../kernels/rules.cu"), kernels: RULE_KERNELS };

const RULE_KERNELS: &[&str] = &{
    let mut all = [""; UpdateRule::STEPS.len() + UpdateRule::MEASURES.len() + MUON.len()];
    let (steps, others) = all.split_at_mut(UpdateRule::STEPS.len());
    let (measures, products) = others.split_at_mut(UpdateRule::MEASURES.len());
    steps.copy_from_slice(UpdateRule::STEPS);
    measures.copy_from_slice(UpdateRule::MEASURES);
    products.copy_from_slice(&MUON);
    all
};

const MUON: [&str; 2] = ["muon_scale", "muon_product"];

const THREADS: u32 = 256;

/// Threads of a block of a product, and the rows and columns that it computes.
const OF_PRODUCT: u32 = 64;
const SIDE: usize = 32;

/// The norm of a tensor is made by blocks of about so many numbers, but no more blocks than this, which is enough for any GPU.
const NUMBERS_OF_A_BLOCK: usize = 4096;
const MOST_BLOCKS: usize = 128;
/// Bytes of two sums of each block.
const SUMS: usize = 16 * MOST_BLOCKS;

/// A run of parameters of one rule, as arguments that all kernels share.
struct Run {
    rule: UpdateRule,
    /// Rows and columns, for Muon.
    shape: [usize; 2],
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

impl Run {
    /// Bytes of scratch memory: for a rule of tensors the sums of the blocks, for Muon two matrices and two squares as well.
    fn scratch(&self) -> usize {
        let side = self.shape[0].min(self.shape[1]);
        match self.rule {
            UpdateRule::Muon(_) => {
                let parts = [self.n as usize, side * side].map(|len| (4 * len).next_multiple_of(256));
                SUMS + 2 * parts[0] + 2 * parts[1]
            }
            rule if rule.of_tensors() => SUMS,
            _ => 0,
        }
    }
}

/// Gradients of an arena whose norms are taken, as arguments that kernels share.
#[derive(Clone, Copy)]
struct Gradients {
    grads: Ptr,
    /// The length of the arena.
    len: u64,
    /// The place and the length of each.
    table: Ptr,
    parts: u32,
    norms: Ptr,
    grid: Geometry,
    /// For each gradient.
    blocks: u32,
    /// Bytes of the sums of all blocks.
    sums: usize,
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
        let params = arena(params)?;
        let (arenas, counts) = ParamRun::state_in(rule, runs);
        let needed = arenas + usize::from(counts);
        Error::check_len(OP, "the state, in arenas,", Span::new(0, state.len().min(needed)), needed)?;
        let (arenas, counted) = state.split_at(state.len() - usize::from(counts));
        let steps = match counted.first() {
            Some(steps) => self.run(OP, "the number of steps", arena(steps)?, Span::new(0, 1))?,
            None => Ptr(0),
        };
        let runs = runs.iter().filter(|run| run.at.len > 0);
        let runs = runs.map(|run| self.run_of(params, arena(grads)?, rule, arenas, run));
        let mut runs = runs.collect::<Result<Vec<Run>>>()?;
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
        let scratch = match runs.iter().map(Run::scratch).max().unwrap_or(0) {
            0 => Ptr(0),
            bytes => self.scratch(bytes)?,
        };
        for run in &mut runs {
            let rule = run.rule;
            let constants: Vec<Arg> = rule.constants().into_iter().map(Arg::from).collect();
            let blocks = (run.n as usize).div_ceil(NUMBERS_OF_A_BLOCK).clamp(1, MOST_BLOCKS) as u32;
            let sums = scratch;
            if let UpdateRule::Muon(_) = rule {
                run.state[1] = scratch.offset(SUMS);
            }
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
            if let UpdateRule::Muon(muon) = &rule {
                self.orthogonalize(muon, run, sums, blocks)?;
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
            if let UpdateRule::Muon(muon) = &rule {
                let target = if muon.normalize { (run.shape[1] as f64).sqrt() as f32 } else { 0.0 };
                args.extend_from_slice(args![muon.adjust.factor(run.shape), target]);
            }
            self.launch(rule.step_name(), run.geometry, &args)?;
        }
        if runs.iter().any(|run| run.rule.counts_steps()) {
            self.launch("count_step", Geometry::line(1, 1), args![self.step_state(), steps])?;
        }
        if scaled {
            self.launch("update_loss_scale", Geometry::line(1, 1), args![self.step_state_to_write()])?;
        }
        self.refresh_compute_copies(params)
    }

    /// See [`Muon::orthogonalize`]. The run's second state is the direction, in scratch memory behind the sums. Three more matrices
    /// follow it.
    fn orthogonalize(&self, muon: &Muon, run: &mut Run, sums: Ptr, blocks: u32) -> Result<()> {
        let ([rows, columns], bytes) = (run.shape, 4 * run.n as usize);
        let side = rows.min(columns);
        let [x, y] = [run.state[1], run.state[1].offset(bytes.next_multiple_of(256))];
        let gram = y.offset(bytes.next_multiple_of(256));
        let square = gram.offset((4 * side * side).next_multiple_of(256));
        self.launch("muon_scale", run.geometry, args![x, run.n, sums, blocks, muon.epsilon])?;
        let [a, b, c] = Muon::POLYNOMIAL;
        let (mut from, mut to) = (x, y);
        for _ in 0..muon.steps {
            let (form, count) =
                if rows > columns { (Form::LeftTransposed, rows) } else { (Form::RightTransposed, columns) };
            self.product(form, [side, count, side], [from, from, gram], None)?;
            self.product(Form::Plain, [side; 3], [gram, gram, square], Some([c, b, a]))?;
            let factors = if rows > columns { [from, square] } else { [square, from] };
            self.product(Form::Plain, [rows, side, columns], [factors[0], factors[1], to], None)?;
            core::mem::swap(&mut from, &mut to);
        }
        run.state[1] = from;
        Ok(())
    }

    /// `out = a b`, of `m` rows and `n` columns, with sums of `k` terms; with factors `c`, `b` and `a` it is
    /// `c a b + b a + a I`.
    fn product(
        &self,
        form: Form,
        [m, k, n]: [usize; 3],
        [a, b, out]: [Ptr; 3],
        of_square: Option<[f32; 3]>,
    ) -> Result<()> {
        let word = |value| u32_of(OP, "a side of a matrix", value);
        let [of_product, of_add, one] = of_square.unwrap_or([1.0, 0.0, 0.0]);
        let strides = |transposed, rows, columns| if transposed { [1, rows] } else { [columns, 1] };
        let [a_down, a_right] = strides(form == Form::LeftTransposed, m, k);
        let [b_down, b_right] = strides(form == Form::RightTransposed, k, n);
        let grid = [word(n.div_ceil(SIDE))?, word(m.div_ceil(SIDE))?, 1];
        let arguments = args![
            word(m)?,
            word(n)?,
            word(k)?,
            a,
            word(a_down)?,
            word(a_right)?,
            b,
            word(b_down)?,
            word(b_right)?,
            out,
            a,
            of_product,
            of_add,
            one
        ];
        let geometry = Geometry { grid, block: [OF_PRODUCT, 1, 1], shared: 0 };
        self.launch("muon_product", geometry, arguments)
    }

    fn run_of(
        &self,
        params: &Buffer,
        grads: &Buffer,
        rule: &UpdateRule,
        arenas: &[&mut Storage],
        run: &ParamRun,
    ) -> Result<Run> {
        let ParamRun { at, lr_multiplier, weight_decay, .. } = *run;
        let rule = run.rule_in(rule);
        let params = self.run(OP, "the parameters", params, at)?;
        let grads = self.run(OP, "the gradients", grads, at)?;
        let mut state = [Ptr(0); 2];
        for ((ptr, name), data) in state.iter_mut().zip(rule.state()).zip(arenas) {
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
        Ok(Run {
            rule,
            shape: run.shape()?,
            params,
            grads,
            state,
            n,
            lr_multiplier,
            penalty,
            shrink,
            vector,
            geometry,
        })
    }

    pub(crate) fn op_clip_grads(&self, clip: Clip, grads: &mut Storage, of: &mut GradNorms) -> Result<()> {
        let grads: &Buffer = grads.on("clip_grads")?;
        let at = self.gradients("clip_grads", grads, of)?;
        let Gradients { grads, len, table, grid, .. } = at;
        if let Clip::Value(limit) = clip {
            return self.launch("clip_values", grid, args![self.step_state(), grads, len, table, limit]);
        }
        let scratch = self.scratch(at.sums + 4 * at.parts as usize)?;
        let (sums, factors) = (scratch, scratch.offset(at.sums));
        self.launch("grad_squares", grid, args![grads, Ptr(0), len, table, sums])?;
        let global = u32::from(matches!(clip, Clip::GlobalNorm(_)));
        self.norms(&at, sums, factors, clip.limit(), global)?;
        self.launch("clip_norms", grid, args![grads, len, table, factors])
    }

    pub(crate) fn op_ascend(
        &self,
        sam: &Sam,
        params: &mut Storage,
        grads: &Storage,
        of: &mut GradNorms,
    ) -> Result<()> {
        let op = "ascend";
        let (params, grads): (&Buffer, &Buffer) = (params.on(op)?, grads.on(op)?);
        of.at.iter().try_for_each(|at| self.run(op, "a parameter", params, *at).map(drop))?;
        let at = self.gradients(op, grads, of)?;
        let Gradients { grads, table, grid, .. } = at;
        // The length that both arenas have.
        let len = at.len.min(params.len() as u64);
        let weights = self.run(op, "the parameters", params, Span::new(0, 0))?;
        let scratch = self.scratch(at.sums + 4 * at.parts as usize)?;
        let (sums, factors) = (scratch, scratch.offset(at.sums));
        let sizes = if sam.adaptive { weights } else { Ptr(0) };
        self.launch("grad_squares", grid, args![grads, sizes, len, table, sums])?;
        self.norms(&at, sums, factors, f32::INFINITY, 0)?;
        let scaled = u32::from(self.options().precision == Precision::Fp16);
        let state = self.step_state_to_write();
        let of_norms = args![state, at.norms, at.parts, factors, sam.rho, Sam::EPSILON, scaled];
        self.launch("ascent_factor", Geometry::line(1, 1), of_norms)?;
        let adaptive = u32::from(sam.adaptive);
        let args = args![self.step_state(), weights, grads, len, table, factors, adaptive];
        self.launch("ascend", grid, args)?;
        self.refresh_compute_copies(params)
    }

    fn gradients(&self, op: &'static str, grads: &Buffer, of: &mut GradNorms) -> Result<Gradients> {
        let GradNorms { at, table, norms } = of;
        let parts = u32_of(op, "the number of gradients", at.len())?;
        at.iter().try_for_each(|at| self.run(op, "a gradient", grads, *at).map(drop))?;
        let len = grads.len() as u64;
        let grads = self.run(op, "the gradients", grads, Span::new(0, 0))?;
        let table = self.ints(op, "their places", table.on(op)?, 2 * at.len())?;
        let norms = self.run(op, "the norms", norms.on(op)?, Span::new(0, at.len()))?;
        let longest = at.iter().map(|at| at.len).max().unwrap_or(0);
        let blocks = longest.div_ceil(NUMBERS_OF_A_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        let grid = Geometry { grid: [blocks, parts, 1], ..Geometry::line(1, THREADS) };
        let sums = 8 * at.len() * blocks as usize;
        Ok(Gradients { grads, len, table, parts, norms, grid, blocks, sums })
    }

    /// The norms from the sums of all blocks, and the factors that clip to a limit.
    fn norms(&self, of: &Gradients, sums: Ptr, factors: Ptr, limit: f32, global: u32) -> Result<()> {
        let args = args![self.step_state(), sums, of.blocks, of.parts, of.norms, factors, limit, global];
        self.launch("grad_norms", Geometry::line(1, THREADS), args)
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
