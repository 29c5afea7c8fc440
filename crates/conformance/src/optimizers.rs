//! Optimizers on runs of flat arenas, and running averages.

use crate::operand::numbers;
use crate::{Bench, Buffer, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::{prelude::*, sample};
use towers_optim::{
    Adam, Adjust, Clip, Lamb, Lars, Lion, Muon, Nadam, Rmsprop, Sam, Sgd, UpdateRule, WeightDecay,
};
use towers_program::{GradNorms, ParamRun, Result, Span, Storage};

/// A few steps of a rule on a run in the middle of an arena.
#[derive(Clone, Debug)]
struct Steps {
    at: Span,
    lr: f32,
    lr_multiplier: f32,
    rule: UpdateRule,
}

impl Case for Steps {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Steps { at, lr, lr_multiplier, rule } = *self;
        let len = at.end() + 5;
        // Gradients carry the loss scale until an optimizer takes it off.
        let grads = numbers("grads", len).into_iter().map(|g| g * bench.loss_scale).collect();
        let (grads, mut params) = (bench.buffer_of(grads)?, bench.buffer("params", len)?);
        let lens = rule.state().iter().map(|_| len).chain(rule.counts_steps().then_some(1));
        let mut arenas = lens.map(|len| bench.buffer_of(vec![0.0; len])).collect::<Result<Vec<Buffer>>>()?;
        let run = ParamRun { lr_multiplier, ..ParamRun::new(at, rule.weight_decay()) };
        for _ in 0..3 {
            let mut state: Vec<&mut Storage> = arenas.iter_mut().map(|arena| &mut arena.data).collect();
            bench.device.optimizer_step(&rule, lr, &mut params.data, &grads.data, &mut state, &[run])?;
        }
        let tolerance = if let UpdateRule::Sgd(_) = rule { 1e-6 } else { 2e-5 };
        // Where a penalty nearly cancels a gradient, a quotient enlarges what rounding left of it.
        let mut outputs = params.outputs(bench, &[("params", at, tolerance)])?;
        for (name, arena) in rule.state().iter().zip(&arenas) {
            outputs.extend(arena.outputs(bench, &[(*name, at, 1e-6)])?);
        }
        if rule.counts_steps() {
            outputs.extend(arenas[rule.state().len()].outputs(bench, &[("steps", Span::new(0, 1), 0.0)])?);
        }
        Ok(outputs)
    }
}

/// A few steps of Muon on a matrix, and of another rule on what follows it.
#[derive(Clone, Debug)]
struct Matrix {
    shape: [usize; 2],
    offset: usize,
    muon: Muon,
    rest: UpdateRule,
}

impl Case for Matrix {
    fn multiplies_in_f32(&self) -> bool {
        true
    }

    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Matrix { shape: [rows, columns], offset, muon, rest } = *self;
        let at = [Span::new(offset, rows * columns), Span::new(offset + rows * columns + 2, 9)];
        let len = at[1].end() + 3;
        let runs = [
            ParamRun { columns, lr_multiplier: 0.5, ..ParamRun::new(at[0], muon.weight_decay) },
            ParamRun { rule: Some(rest), ..ParamRun::new(at[1], rest.weight_decay()) },
        ];
        let (arenas, counts) = ParamRun::state_in(&muon.into(), &runs);
        let lens = core::iter::repeat_n(len, arenas).chain(counts.then_some(1));
        let mut arenas = lens.map(|len| bench.buffer_of(vec![0.0; len])).collect::<Result<Vec<Buffer>>>()?;
        let mut params = bench.buffer("params", len)?;
        for step in 0..3 {
            let grads =
                numbers(&format!("grads {step}"), len).into_iter().map(|g| g * bench.loss_scale).collect();
            let grads = bench.buffer_of(grads)?;
            let mut state: Vec<&mut Storage> = arenas.iter_mut().map(|arena| &mut arena.data).collect();
            bench.device.optimizer_step(
                &muon.into(),
                0.02,
                &mut params.data,
                &grads.data,
                &mut state,
                &runs,
            )?;
        }
        // Iterations enlarge what rounding changed of small singular values.
        let mut outputs = params.outputs(bench, &[("the matrix", at[0], 1e-4), ("the rest", at[1], 2e-5)])?;
        let rules = [(UpdateRule::from(muon), at[0]), (rest, at[1])];
        for (kind, arena) in arenas.iter().enumerate().take(arenas.len() - usize::from(counts)) {
            let of = |(rule, at): &(UpdateRule, Span)| rule.state().get(kind).map(|name| (*name, *at, 1e-6));
            outputs.extend(arena.outputs(bench, &rules.iter().filter_map(of).collect::<Vec<_>>())?);
        }
        Ok(outputs)
    }
}

/// Muon on matrices of every form, beside rules with less and with more state.
pub fn matrices(subject: &Subject) {
    let adam: UpdateRule = Adam::pytorch().into();
    let airbench = Muon::new().momentum(0.6).steps(3).adjust(Adjust::None).normalize();
    let decaying = Muon::new().nesterov(false).weight_decay(WeightDecay::Decoupled(0.1));
    for (shape, offset, muon, rest) in [
        ([27, 40], 3, Muon::new().steps(3), adam),
        ([70, 33], 8, airbench, Sgd::pytorch().momentum(0.85).nesterov().into()),
        ([9, 9], 0, decaying.adjust(Adjust::MatchRmsAdamw), adam),
        ([1, 70], 4, Muon::new().momentum(0.0).weight_decay(WeightDecay::Coupled(0.1)), Sgd::keras().into()),
        ([70, 1], 1, Muon::new().adjust(Adjust::SpectralUnclamped), Lion::keras().into()),
        ([5, 20], 0, Muon::new().momentum(0.0).steps(2), adam),
    ] {
        subject.agree(&Matrix { shape, offset, muon, rest });
    }
}

/// Gradients of several parameters, clipped.
#[derive(Clone, Debug)]
struct Clipping {
    clip: Clip,
    /// The lengths, and the place of the first.
    lens: Vec<usize>,
    offset: usize,
}

impl Case for Clipping {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (mut grads, mut of) = gradients(bench, &self.lens, self.offset)?;
        bench.device.clip_grads(self.clip, &mut grads.data, &mut of)?;
        let mut outputs = vec![norms(bench, &of)?];
        let places: Vec<_> = of.at.iter().map(|&at| ("clipped gradients", at, 1e-6)).collect();
        let grads = grads.outputs(bench, &places)?;
        outputs.extend(grads.into_iter().map(|grad| grad.times(1.0 / bench.loss_scale)));
        Ok(outputs)
    }
}

/// Gradients of parameters with these lengths, of several sizes. The first has this place.
fn gradients(bench: &Bench, lens: &[usize], offset: usize) -> Result<(Buffer, GradNorms)> {
    let (mut at, mut end) = (Vec::new(), offset);
    for &len in lens {
        at.push(Span::new(end, len));
        // A gap that belongs to none.
        end += len + 3;
    }
    let mut grads = numbers("grads", end);
    for (at, size) in at.iter().zip([1.0, 0.01, 30.0].into_iter().cycle()) {
        grads[at.range()].iter_mut().for_each(|g| *g *= size * bench.loss_scale);
    }
    Ok((bench.buffer_of(grads)?, GradNorms::new(bench.device, at)?))
}

fn norms(bench: &Bench, of: &GradNorms) -> Result<Output> {
    Ok(Output::new("norms", bench.download(&of.norms, Span::new(0, of.at.len()))?, 1e-6))
}

/// The first half of sharpness-aware steps.
#[derive(Clone, Debug)]
struct Ascent {
    sam: Sam,
    lens: Vec<usize>,
    offset: usize,
}

impl Case for Ascent {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (grads, mut of) = gradients(bench, &self.lens, self.offset)?;
        let len = of.at.iter().map(|at| at.end()).max().unwrap_or(0);
        // Shorter than the gradients' arena, as with sums and metrics at its end.
        let mut params = bench.buffer("params", len)?;
        for _ in 0..2 {
            bench.device.ascend(&self.sam, &mut params.data, &grads.data, &mut of)?;
        }
        let mut outputs = params.outputs(bench, &[("parameters and gaps", Span::new(0, len), 1e-6)])?;
        outputs.push(norms(bench, &of)?);
        Ok(outputs)
    }
}

/// Both forms, on parameters of a few numbers and of several blocks.
pub fn ascents(subject: &Subject) {
    for sam in [Sam::new(0.5), Sam::new(200.0), Sam::new(2.0).adaptive(), Sam::new(500.0).adaptive()] {
        subject.agree(&Ascent { sam, lens: vec![7, 1, 40_000, 260, 0, 16_385], offset: 5 });
    }
    subject.agree(&Ascent { sam: Sam::new(9.0).adaptive(), lens: vec![1_100_003, 90], offset: 0 });
}

/// Gradients of a few numbers and of several blocks, all beyond the limit or none.
pub fn clipping(subject: &Subject) {
    for limit in [0.5, 1e3] {
        for clip in [Clip::Norm(limit), Clip::Value(limit), Clip::GlobalNorm(limit)] {
            subject.agree(&Clipping { clip, lens: vec![7, 1, 40_000, 260, 0, 16_385], offset: 5 });
        }
    }
    subject.agree(&Clipping { clip: Clip::Norm(0.5), lens: vec![1_100_003, 90], offset: 0 });
}

/// Without momentum there need be no velocity at all.
pub fn no_momentum_needs_no_velocity(subject: &Subject) {
    for bench in subject.benches() {
        let run = || {
            let mut params = bench.buffer_of(vec![1.0, 2.0])?;
            let grads = bench.buffer_of(vec![0.5 * bench.loss_scale, -bench.loss_scale])?;
            let (at, sgd) = (Span::new(0, 2), Sgd::keras().into());
            let run = ParamRun::new(at, WeightDecay::None);
            bench.device.optimizer_step(&sgd, 0.5, &mut params.data, &grads.data, &mut [], &[run])?;
            bench.download(&params.data, at)
        };
        assert_eq!(run().expect("a step without a velocity"), [0.75, 2.5]);
    }
}

#[cfg(feature = "random")]
fn weight_decay() -> impl Strategy<Value = WeightDecay> {
    prop_oneof![
        Just(WeightDecay::None),
        (0.0..0.1_f32).prop_map(WeightDecay::Coupled),
        (0.0..0.1_f32).prop_map(WeightDecay::Decoupled),
    ]
}

/// Every rule, with Keras' and PyTorch's conventions, and an average.
pub fn settings_of_recipes(subject: &Subject) {
    for weight_decay in [WeightDecay::Coupled(1e-3), WeightDecay::Decoupled(0.05)] {
        for rule in rules(0.9, 1e-7) {
            let at = Span::new(13, 20_000);
            subject.agree(&Steps::new(at, 0.05, rule.with_weight_decay(weight_decay)));
        }
    }
    subject.agree(&Average { from: 3, to: 5, len: 4000, momentum: 0.9, scale: 0.01 });
}

/// Every rule in every convention. All averages fade alike.
fn rules(beta: f32, epsilon: f32) -> Vec<UpdateRule> {
    let betas = (f64::from(beta), 1.0 - 0.1 * (1.0 - f64::from(beta)));
    let mut rules: Vec<UpdateRule> = Vec::new();
    for sgd in [Sgd::keras(), Sgd::pytorch()] {
        rules.extend([sgd.momentum(beta), sgd.momentum(beta).nesterov()].map(UpdateRule::from));
    }
    for rmsprop in [Rmsprop::keras2(), Rmsprop::keras3()] {
        rules.push(rmsprop.rho(beta).epsilon(epsilon).into());
    }
    for adam in [Adam::keras(), Adam::pytorch()] {
        rules.push(adam.betas(betas.0, betas.1).epsilon(epsilon).into());
    }
    rules.push(Lion::keras().betas(betas.0, betas.1).into());
    for lars in [Lars::new(), Lars::new().momentum(beta), Lars::new().momentum(beta).nesterov()] {
        rules.push(lars.trust(0.05).into());
    }
    rules.push(Lamb::new().betas(betas.0, betas.1).epsilon(epsilon).into());
    for nadam in [Nadam::keras(), Nadam::pytorch()] {
        rules.push(nadam.betas(betas.0, betas.1).epsilon(epsilon).into());
    }
    rules
}

impl Steps {
    /// Divisions by the size of a gradient need small rates: a penalty on what rounding left enlarges that from step to step.
    fn new(at: Span, lr: f32, rule: UpdateRule) -> Self {
        match rule {
            UpdateRule::Sgd(_) => Steps { at, lr, lr_multiplier: 1.0, rule },
            _ => Steps { at, lr: 0.01 * lr, lr_multiplier: 0.5, rule },
        }
    }
}

/// Every convention, on runs of any place and length.
#[cfg(feature = "random")]
pub fn any_convention(subject: &Subject) {
    let at = (0..50_usize, prop_oneof![0..100_usize, 16_000..50_000_usize]);
    let beta = prop_oneof![Just(0.0_f32), 0.1..0.99_f32];
    let rule = (beta, 1e-7..1e-3_f32).prop_flat_map(|(beta, epsilon)| sample::select(rules(beta, epsilon)));
    let cases = (at, 0.001..0.5_f32, rule, weight_decay());
    let case = |((offset, len), lr, rule, decay): ((usize, usize), f32, UpdateRule, WeightDecay)| {
        Steps::new(Span::new(offset, len), lr, rule.with_weight_decay(decay))
    };
    subject.agree_on(144, cases.prop_map(case));
}

/// Running averages of a run, from sums at another place.
#[derive(Clone, Debug)]
struct Average {
    from: usize,
    to: usize,
    len: usize,
    momentum: f32,
    scale: f32,
}

impl Case for Average {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (from, to) = (Span::new(self.from, self.len), Span::new(self.to, self.len));
        let sums = bench.buffer("sums", from.end() + 1)?;
        let mut running = bench.buffer("running", to.end() + 1)?;
        for _ in 0..3 {
            bench.device.ema_step(self.momentum, self.scale, &sums.data, from, &mut running.data, to)?;
        }
        running.outputs(bench, &[("running", to, 1e-6)])
    }
}

/// Running averages of any length.
#[cfg(feature = "random")]
pub fn any_average(subject: &Subject) {
    let cases = (0..9_usize, 0..9_usize, 0..5000_usize, 0.0..1.0_f32, 0.001..1.0_f32);
    let case = |(from, to, len, momentum, scale)| Average { from, to, len, momentum, scale };
    subject.agree_on(24, cases.prop_map(case));
}
