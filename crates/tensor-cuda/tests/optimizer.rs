//! Optimizers, running averages and the meter on the emulated GPU against the CPU and the f64 reference.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use core::ops::Range;
use towers_optim::{Adam, Clip, Nadam, Optimizer, Rmsprop, Sam, Sgd, UpdateRule, Velocity, WeightDecay};
use towers_program::{
    Backend, Device, GradNorms, OptimizerState, ParamRun, Precision, Result, Span, Storage,
};
use towers_tensor_cpu::{Cpu, Reference};
use towers_tensor_cuda::Cuda;

fn plain(at: Span) -> ParamRun {
    ParamRun::new(at, WeightDecay::None)
}

/// Ten steps of all optimizers on runs in the middle of an arena, with a rate and gradients that change.
#[derive(Debug)]
struct Steps {
    at: Span,
    /// Two runs with different rules in `at`, and the elements between them are left alone. `None` for one
    /// rule.
    groups: Option<[ParamRun; 2]>,
    lr: f32,
    sgd: Sgd,
    rmsprop: Rmsprop,
    adam: Adam,
}

impl Steps {
    fn draw(rng: &mut towers_philox::Philox) -> Steps {
        let (decay, lr) = (0.1 * rng.unit_f32(), 0.001 + 0.3 * rng.unit_f32());
        let weight_decay =
            pick(rng, &[WeightDecay::None, WeightDecay::Coupled(decay), WeightDecay::Decoupled(decay)]);
        let momentum = [0.0, 0.9 * rng.unit_f32()][between(rng, 0, 1)];
        let velocity = pick(rng, &[Velocity::Keras, Velocity::PyTorch]);
        let len = [between(rng, 0, 100), between(rng, 1000, 6000)][between(rng, 0, 1)];
        let at = Span::new([between(rng, 0, 30), 4 * between(rng, 0, 9)][between(rng, 0, 1)], len);
        let run = |rng: &mut towers_philox::Philox, from: usize, to: usize| ParamRun {
            lr_multiplier: pick(rng, &[1.0, 0.0, 2.5]),
            ..ParamRun::new(
                Span::new(at.offset + from, to - from),
                pick(rng, &[weight_decay, WeightDecay::Coupled(0.01), WeightDecay::None]),
            )
        };
        let from = len / 3 + between(rng, 0, len / 3);
        let runs = [run(rng, 0, len / 3), run(rng, from, len)];
        let groups = (rng.below(2) == 0).then_some(runs);
        Steps {
            at,
            groups,
            lr,
            sgd: Sgd { momentum, nesterov: rng.below(2) == 0, velocity, weight_decay },
            rmsprop: Rmsprop {
                rho: 0.5 + 0.49 * rng.unit_f32(),
                epsilon: pick(rng, &[1e-7, 1e-3]),
                epsilon_inside_root: rng.below(2) == 0,
                weight_decay,
            },
            adam: Adam {
                beta1: pick(rng, &[0.0, 0.9]),
                beta2: pick(rng, &[0.9, 0.999]),
                epsilon: pick(rng, &[1e-7, 1e-3]),
                epsilon_hat: rng.below(2) == 0,
                weight_decay,
            },
        }
    }

    /// The runs of a step whose weight decay is this one.
    fn runs(&self, weight_decay: WeightDecay) -> Vec<ParamRun> {
        self.groups.map_or(vec![ParamRun::new(self.at, weight_decay)], |runs| runs.to_vec())
    }
}

/// A name, the remaining share, and the tolerance.
type Left = (&'static str, Vec<f32>, f32);

impl Steps {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Left>> {
        let len = self.at.end() + 5;
        let scale = if precision == Precision::Fp16 && device.runs_ahead() { FIRST_LOSS_SCALE } else { 1.0 };
        let all = Span::new(0, len);
        let mut arenas = Vec::new();
        for _ in 0..3 {
            arenas.push((upload(device, &numbers("params", len))?, upload(device, &vec![0.25; len])?));
        }
        let (mut squares, mut steps) = (upload(device, &vec![0.5; len])?, device.alloc(1)?);
        for step in 0..10 {
            let grads: Vec<f32> = numbers(&format!("grads {step}"), len).iter().map(|g| g * scale).collect();
            let grads = upload(device, &grads)?;
            let lr = self.lr * (1.0 - 0.05 * step as f32);
            let Steps { sgd, rmsprop, adam, .. } = *self;
            let [(of_sgd, velocity), (of_rmsprop, mean_square), (of_adam, mean)] = &mut arenas[..] else {
                panic!("three optimizers")
            };
            let of_velocity: &mut [_] = if sgd.momentum == 0.0 { &mut [] } else { &mut [velocity] };
            let moments = &mut [mean, &mut squares, &mut steps];
            let step = |rule: UpdateRule, lr, params: &mut Storage, state: &mut [&mut Storage]| {
                device.optimizer_step(&rule, lr, params, &grads, state, &self.runs(rule.weight_decay()))
            };
            step(sgd.into(), lr, of_sgd, of_velocity)?;
            step(rmsprop.into(), 0.01 * lr, of_rmsprop, &mut [mean_square])?;
            step(adam.into(), 0.01 * lr, of_adam, moments)?;
        }
        Ok(vec![
            ("params after SGD", download(device, &arenas[0].0, all)?, 2e-6),
            ("velocity", download(device, &arenas[0].1, all)?, 2e-6),
            ("params after RMSprop", download(device, &arenas[1].0, all)?, 2e-6),
            ("mean squares", download(device, &arenas[1].1, all)?, 2e-6),
            ("params after Adam", download(device, &arenas[2].0, all)?, 2e-6),
            ("means", download(device, &arenas[2].1, all)?, 2e-6),
            ("mean squares of Adam", download(device, &squares, all)?, 2e-6),
            ("steps of Adam", download(device, &steps, Span::new(0, 1))?, 0.0),
        ])
    }
}

#[test]
fn any_convention() {
    let mut rng = draws("any_convention");
    let devices = PRECISIONS.map(emulated);
    for _ in 0..24 {
        let case = Steps::draw(&mut rng);
        let expected = case.run(&Reference, Precision::Fp32).unwrap();
        let on_cpu = case.run(&Cpu::new(1), Precision::Fp32).unwrap();
        for cuda in &devices {
            let precision = cuda.options().precision;
            let got = case.run(cuda, precision).unwrap();
            for ((name, got, tolerance), (expected, on_cpu)) in got.iter().zip(expected.iter().zip(&on_cpu)) {
                let what = format!("{name} of {case:?} in {precision}");
                assert_close(&what, got, &expected.1, *tolerance, 0.0);
                assert_close(&format!("{what}, as on the CPU,"), got, &on_cpu.1, 1e-6, 0.0);
            }
        }
    }
}

/// More steps than NAdam's product of momenta has factors that matter.
#[test]
fn many_steps_of_nadam() {
    fn run(device: &dyn Backend, rule: UpdateRule) -> Vec<f32> {
        let (len, all) = (70, plain(Span::new(0, 70)));
        let mut params = upload(device, &numbers("params", len)).unwrap();
        let [mut mean, mut square, mut steps] = [len, len, 1].map(|len| device.alloc(len).unwrap());
        for step in 0..60 {
            let grads = upload(device, &numbers(&format!("grads {step}"), len)).unwrap();
            let state = &mut [&mut mean, &mut square, &mut steps];
            device.optimizer_step(&rule, 0.01, &mut params, &grads, state, &[all]).unwrap();
        }
        download(device, &params, all.at).unwrap()
    }
    for nadam in [Nadam::keras(), Nadam::pytorch(), Nadam::keras().betas(0.5, 0.9)] {
        let [got, expected] =
            [&emulated(Precision::Fp32) as &dyn Backend, &Reference].map(|d| run(d, nadam.into()));
        assert_close(&format!("{nadam:?}"), &got, &expected, 2e-6, 0.0);
    }
}

/// Losses of very different sizes, summed as exactly as on the processor.
#[test]
fn the_meter_has_the_bits_of_the_cpu() {
    fn run(device: &dyn Backend) -> Vec<f32> {
        let mut meter = upload(device, &[0.0; 4]).unwrap();
        let mut sums = device.alloc(3).unwrap();
        for (k, loss) in numbers("losses", 500).iter().enumerate() {
            let loss = loss.abs() * [1.0, 1e-5, 1e4][k % 3];
            device.upload(&[loss, (k % 70) as f32], &mut sums, 1).unwrap();
            device.meter(&sums, Span::new(1, 2), &mut meter).unwrap();
        }
        download(device, &meter, Span::new(0, 4)).unwrap()
    }
    let (got, on_cpu) = (run(&emulated(Precision::Bf16)), run(&Cpu::new(1)));
    assert_eq!(got, on_cpu);
    assert_eq!(got[3], 500.0);
    let exact: f64 = numbers("losses", 500)
        .iter()
        .enumerate()
        .map(|(k, loss)| f64::from(loss.abs() * [1.0, 1e-5, 1e4][k % 3]))
        .sum();
    let total = f64::from(got[0]) + f64::from(got[1]);
    assert!((total - exact).abs() < 1e-12 * exact, "{total}, {exact}");
}

/// From a loss that is not finite on nothing moves, until the meter is uploaded anew.
#[test]
fn a_bad_loss_halts_all_steps() {
    for (bad, precision) in [(f32::NAN, Precision::Fp32), (f32::INFINITY, Precision::Fp16)] {
        let cuda = emulated(precision);
        let at = Span::new(0, 70);
        let arena = |name| upload(&cuda, &numbers(name, 70)).unwrap();
        let (mut params, grads, mut velocity, mut running) = (arena("p"), arena("g"), arena("v"), arena("r"));
        let mut squares = cuda.alloc(70).unwrap();
        let (mut of_adam, mut steps) =
            ([arena("p"), arena("m"), cuda.alloc(70).unwrap()], cuda.alloc(1).unwrap());
        let (mut sums, mut meter) = (cuda.alloc(2).unwrap(), cuda.alloc(4).unwrap());
        let mut step = |loss: f32, meter: &mut _| {
            cuda.upload(&[loss, 3.0], &mut sums, 0).unwrap();
            cuda.meter(&sums, Span::new(0, 2), meter).unwrap();
            cuda.ema_step(0.9, 1.0, &grads, at, &mut running, at).unwrap();
            let rmsprop = Rmsprop::keras3().epsilon(1e-3);
            let [weights, mean, mean_square] = &mut of_adam;
            let (sgd, runs) = (Sgd::keras().momentum(0.9).into(), [plain(at)]);
            cuda.optimizer_step(&sgd, 0.5, &mut params, &grads, &mut [&mut velocity], &runs).unwrap();
            cuda.optimizer_step(&rmsprop.into(), 0.1, &mut params, &grads, &mut [&mut squares], &runs)
                .unwrap();
            let (adam, moments) = (Adam::keras().into(), &mut [mean, mean_square, &mut steps]);
            cuda.optimizer_step(&adam, 0.1, weights, &grads, moments, &runs).unwrap();
            let [weights, mean, mean_square] = &of_adam;
            let arenas = [&params, &velocity, &squares, &running, weights, mean, mean_square];
            let mut all = arenas.map(|x| download(&cuda, x, at).unwrap()).to_vec();
            all.push(download(&cuda, &steps, Span::new(0, 1)).unwrap());
            all
        };
        let good = step(1.5, &mut meter);
        assert_eq!(step(bad, &mut meter), good);
        assert_eq!(step(1.0, &mut meter), good);
        let seen = download(&cuda, &meter, Span::new(0, 4)).unwrap();
        assert!(!seen[0].is_finite());
        assert_eq!(seen[1..], [0.0, 3.0, 1.0], "the steps after the bad loss count no more");
        cuda.upload(&[0.0; 4], &mut meter, 0).unwrap();
        let moved = step(1.0, &mut meter);
        assert!((0..8).all(|k| moved[k] != good[k]), "a new meter lets all go on");
    }
}

/// One parameter that starts at 0: its new value shows the loss scale.
struct Scaled {
    cuda: Cuda,
    len: usize,
}

impl Scaled {
    /// The loss scale that a step with these gradients works with; 0 if it moves nothing.
    fn step(&self, odd: Option<(Range<usize>, f32)>) -> f32 {
        let mut grads = vec![1.0; self.len];
        if let Some((at, odd)) = odd {
            grads[at].fill(odd);
        }
        let (grads, mut params) = (upload(&self.cuda, &grads).unwrap(), self.cuda.alloc(self.len).unwrap());
        let at = Span::new(0, self.len);
        let sgd = Sgd::keras().into();
        self.cuda.optimizer_step(&sgd, 1.0, &mut params, &grads, &mut [], &[plain(at)]).unwrap();
        let moved = download(&self.cuda, &params, at).unwrap()[0];
        if moved == 0.0 { 0.0 } else { -1.0 / moved }
    }
}

#[test]
fn gradients_that_overflow_move_nothing_and_halve_the_loss_scale() {
    let run = Scaled { cuda: emulated(Precision::Fp16), len: 1030 };
    let mut scale = FIRST_LOSS_SCALE;
    for odd in
        [(0..1, f32::INFINITY), (517..518, f32::NAN), (1029..1030, f32::NEG_INFINITY), (0..1030, f32::NAN)]
    {
        assert_eq!(run.step(None), scale);
        assert_eq!(run.step(Some(odd.clone())), 0.0, "{odd:?}");
        scale /= 2.0;
        assert_eq!(run.step(None), scale);
    }
    // Other precisions have no loss scale, and take gradients as they are.
    assert_eq!(Scaled { cuda: emulated(Precision::Bf16), len: 3 }.step(None), 1.0);
}

/// The loss scale is of the whole step: all runs move or none, and it changes once.
#[test]
fn gradients_that_overflow_in_one_run_move_no_other() {
    let cuda = emulated(Precision::Fp16);
    let run = |offset| ParamRun { lr_multiplier: 2.0, ..plain(Span::new(offset, 8)) };
    let step = |odd: f32| {
        let mut grads = vec![1.0; 24];
        grads[20] = odd;
        let (grads, mut params) = (upload(&cuda, &grads).unwrap(), cuda.alloc(24).unwrap());
        let (sgd, runs) = (Sgd::keras().into(), [run(0), run(16)]);
        cuda.optimizer_step(&sgd, 1.0, &mut params, &grads, &mut [], &runs).unwrap();
        [0, 8, 16].map(|k| download(&cuda, &params, Span::new(k, 1)).unwrap()[0])
    };
    let moved = -2.0 / FIRST_LOSS_SCALE;
    assert_eq!(step(1.0), [moved, 0.0, moved]);
    assert_eq!(step(f32::INFINITY), [0.0; 3]);
    assert_eq!(step(1.0), [2.0 * moved, 0.0, 2.0 * moved]);
}

#[test]
fn two_thousand_good_steps_double_the_loss_scale() {
    let run = Scaled { cuda: emulated(Precision::Fp16), len: 3 };
    for _ in 0..1999 {
        assert_eq!(run.step(None), FIRST_LOSS_SCALE);
    }
    assert_eq!(run.step(Some((1..2, f32::NAN))), 0.0);
    // The count begins anew.
    for _ in 0..2000 {
        assert_eq!(run.step(None), FIRST_LOSS_SCALE / 2.0);
    }
    assert_eq!(run.step(None), FIRST_LOSS_SCALE);
}

/// A loss scale of any size stays usable: it never becomes 0.
#[test]
fn the_loss_scale_never_vanishes() {
    let run = Scaled { cuda: emulated(Precision::Fp16), len: 2 };
    for _ in 0..200 {
        run.step(Some((0..1, f32::NAN)));
    }
    let scale = run.step(None);
    assert!(scale > 0.0 && scale.is_finite(), "{scale}");
}

/// A step that overflows is none: neither moments nor the count of steps move.
#[test]
fn gradients_that_overflow_are_no_step_of_adam() {
    let cuda = emulated(Precision::Fp16);
    let at = Span::new(0, 3);
    let [mut params, mut mean, mut mean_square] = [(); 3].map(|()| cuda.alloc(3).unwrap());
    let mut steps = cuda.alloc(1).unwrap();
    for (odd, expected) in [(1.0, 1.0), (f32::INFINITY, 1.0), (1.0, 2.0)] {
        let grads = upload(&cuda, &[1.0, odd, 1.0]).unwrap();
        let before = download(&cuda, &params, at).unwrap();
        let (adam, moments) = (Adam::keras().into(), &mut [&mut mean, &mut mean_square, &mut steps]);
        cuda.optimizer_step(&adam, 0.1, &mut params, &grads, moments, &[plain(at)]).unwrap();
        assert_eq!(download(&cuda, &steps, Span::new(0, 1)).unwrap(), [expected], "{odd}");
        assert_eq!(download(&cuda, &params, at).unwrap() == before, odd.is_infinite(), "{odd}");
        assert!(download(&cuda, &mean_square, at).unwrap().iter().all(|a| a.is_finite()), "{odd}");
    }
}

/// Clipping hides no overflow: neither infinity that it would cut off, nor NaN.
#[test]
fn clipped_gradients_that_overflow_move_nothing() {
    for clip in [Clip::Value(0.5), Clip::Norm(0.5), Clip::GlobalNorm(0.5)] {
        let device = Device::from(emulated(Precision::Fp16));
        let mut state = OptimizerState::new(&device, Optimizer::from(Sgd::keras()).clip(clip), 3).unwrap();
        let mut params = device.alloc(3).unwrap();
        for odd in [f32::INFINITY, f32::NAN] {
            let mut grads = upload(&*device, &[1.0, odd, 1.0]).unwrap();
            state.step(&device, 1.0, &mut params, &mut grads, Span::new(0, 3)).unwrap();
            assert_eq!(params.to_vec(&device, 0, 3).unwrap(), [0.0; 3], "{clip:?} of {odd}");
        }
        // Limits are of gradients without the loss scale, which two overflows have brought down.
        let scaled = [3.0, 0.0, 4.0].map(|g| g * FIRST_LOSS_SCALE / 4.0);
        let mut grads = upload(&*device, &scaled).unwrap();
        state.step(&device, 1.0, &mut params, &mut grads, Span::new(0, 3)).unwrap();
        let expected = if clip == Clip::Value(0.5) { [-0.5, 0.0, -0.5] } else { [-0.3, 0.0, -0.4] };
        assert_close(&format!("{clip:?}"), &params.to_vec(&device, 0, 3).unwrap(), &expected, 1e-6, 0.0);
    }
}

/// A table that is not that of the gradients reaches nothing outside of their arena.
#[test]
fn a_wrong_table_of_gradients_clips_nothing_outside() {
    let cuda = emulated(Precision::Fp32);
    for clip in [Clip::Value(0.5), Clip::Norm(0.5), Clip::GlobalNorm(0.5)] {
        let mut grads = upload(&cuda, &[1.0; 8]).unwrap();
        let (mut table, norms) = (cuda.alloc_ints(4).unwrap(), cuda.alloc(2).unwrap());
        cuda.upload_ints(&[6, 3, u32::MAX, u32::MAX], &mut table).unwrap();
        let mut of = GradNorms { at: vec![Span::new(0, 4), Span::new(4, 4)], table, norms };
        cuda.clip_grads(clip, &mut grads, &mut of).unwrap();
        assert_eq!(download(&cuda, &grads, Span::new(0, 8)).unwrap(), [1.0; 8], "{clip:?}");
    }
}

/// The same of an ascent, whose parameters end before the gradients' arena does.
#[test]
fn a_wrong_table_moves_nothing_outside() {
    let cuda = emulated(Precision::Fp32);
    for sam in [Sam::new(0.5), Sam::new(0.5).adaptive()] {
        let (mut params, grads) = (upload(&cuda, &[1.0; 8]).unwrap(), upload(&cuda, &[1.0; 12]).unwrap());
        let (mut table, norms) = (cuda.alloc_ints(4).unwrap(), cuda.alloc(2).unwrap());
        cuda.upload_ints(&[6, 3, u32::MAX, u32::MAX], &mut table).unwrap();
        let mut of = GradNorms { at: vec![Span::new(0, 4), Span::new(4, 4)], table, norms };
        cuda.ascend(&sam, &mut params, &grads, &mut of).unwrap();
        assert_eq!(download(&cuda, &params, Span::new(0, 8)).unwrap(), [1.0; 8], "{sam}");
    }
}

/// The loss scale changes no distance. Gradients of the first pass that overflow move nothing, in the whole step, and halve the
/// loss scale once.
#[test]
fn an_overflow_of_the_first_pass_skips_the_step() {
    let (device, at) = (Device::from(emulated(Precision::Fp16)), Span::new(0, 4));
    for sam in [Sam::new(0.5), Sam::new(0.5).adaptive()] {
        let state = OptimizerState::new(&device, Sgd::keras(), 4).unwrap();
        let mut state = state.sharpness_aware(&device, sam).unwrap();
        let mut params = upload(&*device, &[1.0, -0.0, 1.0, 2.0]).unwrap();
        let mut step = |odd: f32| {
            let scale = device.loss_scale().unwrap().unwrap()[0];
            let first = upload(&*device, &[0.6 * scale, odd, 0.8 * scale, 0.0]).unwrap();
            let mut second = upload(&*device, &[scale; 4]).unwrap();
            state.ascend(&device, &mut params, &first).unwrap();
            let above = params.to_vec(&device, 0, 4).unwrap();
            state.descend(&device, &mut params).unwrap();
            let back = params.to_vec(&device, 0, 4).unwrap();
            assert_eq!(back[1].to_bits(), (-0.0_f32).to_bits(), "parameters come back to the last bit");
            state.step(&device, 0.0, &mut params, &mut second, at).unwrap();
            (above, device.loss_scale().unwrap().unwrap()[0] / scale)
        };
        for odd in [f32::INFINITY, f32::NAN] {
            assert_eq!(step(odd), (vec![1.0, 0.0, 1.0, 2.0], 0.5), "{sam}, {odd}");
        }
        let (above, loss_scale) = step(0.0);
        assert_close(&sam.to_string(), &above, &[1.3, 0.0, 1.4, 2.0], 1e-6, 0.0);
        assert_eq!(loss_scale, 1.0);
    }
}

/// After a loss that is not finite.
#[test]
fn a_bad_loss_halts_the_ascent() {
    let cuda = emulated(Precision::Fp32);
    let (sums, mut meter) = (upload(&cuda, &[f32::NAN, 1.0]).unwrap(), cuda.alloc(4).unwrap());
    cuda.meter(&sums, Span::new(0, 2), &mut meter).unwrap();
    let (mut params, grads) = (upload(&cuda, &[1.0; 3]).unwrap(), upload(&cuda, &[1.0; 3]).unwrap());
    let mut of = GradNorms::new(&cuda, vec![Span::new(0, 3)]).unwrap();
    cuda.ascend(&Sam::new(0.5), &mut params, &grads, &mut of).unwrap();
    assert_eq!(download(&cuda, &params, Span::new(0, 3)).unwrap(), [1.0; 3]);
}
