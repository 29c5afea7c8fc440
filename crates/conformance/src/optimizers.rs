//! Optimizers on runs of flat arenas, and running averages.

use crate::operand::numbers;
use crate::{Bench, Buffer, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_optim::{Adam, Clip, Rmsprop, Sgd, UpdateRule, Velocity, WeightDecay};
use towers_program::{ClippedGrads, ParamRun, Result, Span, Storage};

/// A few steps of all optimizers on a run in the middle of an arena.
#[derive(Clone, Debug)]
struct Steps {
    at: Span,
    lr: f32,
    sgd: Sgd,
    rmsprop: Rmsprop,
    adam: Adam,
}

impl Case for Steps {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (device, at, len) = (bench.device, self.at, self.at.end() + 5);
        // Gradients carry the loss scale until an optimizer takes it off.
        let grads = numbers("grads", len).into_iter().map(|g| g * bench.loss_scale).collect();
        let grads = bench.buffer_of(grads)?;
        let zeros = |len| bench.buffer_of(vec![0.0; len]);
        let step = |rule: &UpdateRule, lr, lr_multiplier, params: &mut Buffer, state: &mut [&mut Storage]| {
            let run = ParamRun { at, lr_multiplier, weight_decay: rule.weight_decay() };
            (0..3).try_for_each(|_| {
                device.optimizer_step(rule, lr, &mut params.data, &grads.data, state, &[run])
            })
        };
        let rule = self.sgd.into();
        let (mut params, mut velocity) = (bench.buffer("params", len)?, zeros(len)?);
        let state: &mut [_] = if self.sgd.momentum == 0.0 { &mut [] } else { &mut [&mut velocity.data] };
        step(&rule, self.lr, 1.0, &mut params, state)?;
        let mut outputs = params.outputs(bench, &[("params after SGD", at, 1e-6)])?;
        outputs.extend(velocity.outputs(bench, &[("velocity", at, 1e-6)])?);
        let (mut params, mut squares) = (bench.buffer("params", len)?, zeros(len)?);
        // At larger rates a penalty on what rounding left enlarges that from step to step.
        step(&self.rmsprop.into(), 0.01 * self.lr, 1.0, &mut params, &mut [&mut squares.data])?;
        // Where a penalty nearly cancels a gradient, the quotient enlarges what rounding left of it.
        outputs.extend(params.outputs(bench, &[("params after RMSprop", at, 2e-5)])?);
        outputs.extend(squares.outputs(bench, &[("mean squares", at, 1e-6)])?);
        let mut params = bench.buffer("params", len)?;
        let (mut mean, mut squares, mut steps) = (zeros(len)?, zeros(len)?, zeros(1)?);
        let state = &mut [&mut mean.data, &mut squares.data, &mut steps.data];
        step(&self.adam.into(), 0.01 * self.lr, 0.5, &mut params, state)?;
        outputs.extend(params.outputs(bench, &[("params after Adam", at, 2e-5)])?);
        outputs.extend(mean.outputs(bench, &[("means", at, 1e-6)])?);
        outputs.extend(squares.outputs(bench, &[("mean squares of Adam", at, 1e-6)])?);
        outputs.extend(steps.outputs(bench, &[("steps", Span::new(0, 1), 0.0)])?);
        Ok(outputs)
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
        let mut at = Vec::new();
        let mut end = self.offset;
        for &len in &self.lens {
            at.push(Span::new(end, len));
            // A gap that belongs to none.
            end += len + 3;
        }
        // Gradients of several sizes.
        let mut grads = numbers("grads", end);
        for (at, size) in at.iter().zip([1.0, 0.01, 30.0].into_iter().cycle()) {
            grads[at.range()].iter_mut().for_each(|g| *g *= size * bench.loss_scale);
        }
        let mut grads = bench.buffer_of(grads)?;
        let mut clipped = ClippedGrads::new(bench.device, self.clip, at)?;
        bench.device.clip_grads(&mut grads.data, &mut clipped)?;
        let norms = bench.download(&clipped.norms, Span::new(0, clipped.at.len()))?;
        let mut outputs = vec![Output::new("norms", norms, 1e-6)];
        let places: Vec<_> = clipped.at.iter().map(|&at| ("clipped gradients", at, 1e-6)).collect();
        let grads = grads.outputs(bench, &places)?;
        outputs.extend(grads.into_iter().map(|grad| grad.times(1.0 / bench.loss_scale)));
        Ok(outputs)
    }
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

/// SGD with Nesterov's momentum, RMSprop and Adam, with Keras' and PyTorch's conventions, and an average.
pub fn settings_of_recipes(subject: &Subject) {
    for (keras, weight_decay) in [(true, WeightDecay::Coupled(1e-3)), (false, WeightDecay::Decoupled(0.05))] {
        let velocity = if keras { Velocity::Keras } else { Velocity::PyTorch };
        subject.agree(&Steps {
            at: Span::new(13, 20_000),
            lr: 0.05,
            sgd: Sgd { momentum: 0.9, nesterov: true, velocity, weight_decay },
            rmsprop: Rmsprop { rho: 0.9, epsilon: 1e-7, epsilon_inside_root: !keras, weight_decay },
            adam: Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-7, epsilon_hat: keras, weight_decay },
        });
    }
    subject.agree(&Average { from: 3, to: 5, len: 4000, momentum: 0.9, scale: 0.01 });
}

/// Every convention, on runs of any place and length.
#[cfg(feature = "random")]
pub fn any_convention(subject: &Subject) {
    let at = (0..50_usize, prop_oneof![0..100_usize, 16_000..50_000_usize]);
    let momentum = prop_oneof![Just(0.0_f32), 0.1..0.99_f32];
    let betas = (prop_oneof![Just(0.0), 0.5..0.99], prop_oneof![Just(0.999), 0.5..0.9999]);
    let constants = (0.001..0.5_f32, momentum, 0.5..0.99_f32, betas, 1e-7..1e-3_f32, weight_decay());
    let cases = (at, constants, any::<(bool, bool, bool)>());
    let case = |((offset, len), constants, (nesterov, keras, inside))| {
        let (lr, momentum, rho, (beta1, beta2), epsilon, weight_decay) = constants;
        let velocity = if keras { Velocity::Keras } else { Velocity::PyTorch };
        let sgd = Sgd { momentum, nesterov, velocity, weight_decay };
        let rmsprop = Rmsprop { rho, epsilon, epsilon_inside_root: inside, weight_decay };
        let adam = Adam { beta1, beta2, epsilon, epsilon_hat: keras, weight_decay };
        Steps { at: Span::new(offset, len), lr, sgd, rmsprop, adam }
    };
    subject.agree_on(48, cases.prop_map(case));
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
