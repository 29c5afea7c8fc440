//! Optimizers on devices: golden values, resume, spans, groups, refusals, and the differences between conventions that the docs
//! state.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::Value;
use towers_optim::{
    Adam, Clip, Lion, Muon, Nadam, Optimizer, ParamGroup, Progress, Rmsprop, Sam, Schedule, Sgd, WeightDecay,
};
use towers_program::{Device, Error, OptimizerState, Span, Storage};
use values::*;

#[path = "../../optim/tests/values.rs"]
mod values;

fn upload(device: &Device, values: &[f32]) -> Storage {
    let mut storage = device.alloc(values.len()).unwrap();
    device.upload(values, &mut storage, 0).unwrap();
    storage
}

fn all_kinds() -> Vec<Optimizer> {
    vec![
        Sgd::keras().into(),
        Sgd::keras().momentum(0.9).weight_decay(WeightDecay::Decoupled(0.01)).into(),
        Sgd::keras().momentum(0.9).nesterov().into(),
        Sgd::pytorch().momentum(0.9).nesterov().weight_decay(WeightDecay::Coupled(0.01)).into(),
        Rmsprop::keras2().into(),
        Rmsprop::keras3().weight_decay(WeightDecay::Decoupled(0.01)).into(),
        Rmsprop::pytorch().weight_decay(WeightDecay::Coupled(0.01)).into(),
        Adam::keras().weight_decay(WeightDecay::Decoupled(0.01)).into(),
        Adam::pytorch().betas(0.8, 0.95).weight_decay(WeightDecay::Coupled(0.01)).into(),
        Lion::keras().weight_decay(WeightDecay::Decoupled(0.1)).into(),
        Nadam::keras().weight_decay(WeightDecay::Decoupled(0.01)).into(),
        Muon::new().weight_decay(WeightDecay::Decoupled(0.01)).into(),
    ]
}

/// Parameters and state after `rates.len()` steps; with `stop`, through an export and import in the middle.
fn train(
    optimizer: Optimizer,
    threads: usize,
    rates: &[f64],
    grads: &[f32],
    stop: Option<usize>,
) -> (Vec<u32>, Vec<u32>) {
    let mut device = towers_tensor_cpu::device(threads);
    let len = grads.len() / rates.len();
    let span = Span::new(0, len);
    let mut params = upload(&device, &vec![0.5; len]);
    let mut state = OptimizerState::new(&device, optimizer, len).unwrap();
    for (step, (lr, grad)) in rates.iter().zip(grads.chunks(len)).enumerate() {
        if stop == Some(step) {
            let (weights, memory) = (params.to_vec(&device, 0, len).unwrap(), state.export(&device).unwrap());
            device = towers_tensor_cpu::device(3);
            params = upload(&device, &weights);
            state = OptimizerState::new(&device, optimizer, len).unwrap();
            state.import(&device, &memory).unwrap();
        }
        state.step(&device, *lr, &mut params, &mut upload(&device, grad), span).unwrap();
    }
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    (bits(params.to_vec(&device, 0, len).unwrap()), bits(state.export(&device).unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_resumed_run_goes_on_bit_for_bit(
        rates in proptest::collection::vec(0.0..0.5f64, 2..8),
        stop in 0..8usize,
        seed in proptest::collection::vec(-2.0f32..2.0, 8 * 37),
    ) {
        let grads = &seed[..rates.len() * 37];
        for optimizer in all_kinds() {
            let whole = train(optimizer, 1, &rates, grads, None);
            let resumed = train(optimizer, 1, &rates, grads, Some(stop % rates.len()));
            prop_assert_eq!(whole, resumed, "{}", optimizer);
        }
    }
}

#[test]
fn the_cpu_does_as_the_reference() {
    let (cpu, reference) = (towers_tensor_cpu::device(2), towers_tensor_cpu::reference());
    // Longer than a thread's part of the work, and no multiple of a vector.
    let len = 40_013;
    let weights: Vec<f32> = (0..len).map(|k| (k as f32 * 0.37).sin()).collect();
    // No `g + w * p` near 0: RMSprop would magnify the error of the cancellation.
    let grad: Vec<f32> =
        (0..len).map(|k| 0.1 * (1.5 + (k as f32 * 1.7).cos()) * [1.0, -1.0][k % 2]).collect();
    for optimizer in all_kinds() {
        let results = [&cpu, &reference].map(|device| {
            let (mut params, mut grads) = (upload(device, &weights), upload(device, &grad));
            let mut state = OptimizerState::new(device, optimizer, len).unwrap();
            for lr in [0.1, 0.1, 0.01] {
                state.step(device, lr, &mut params, &mut grads, Span::new(0, len)).unwrap();
            }
            params.to_vec(device, 0, len).unwrap()
        });
        let worst = results[0].iter().zip(&results[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-6, "{optimizer}: {worst}");
    }
}

#[test]
fn a_step_leaves_what_lies_outside_of_its_span() {
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(2)] {
        for optimizer in all_kinds() {
            let mut params = upload(&device, &[1.0; 5]);
            // Gradients may be followed by more: sums of batch norm, metrics.
            let mut grads = upload(&device, &[0.5; 9]);
            let mut state = OptimizerState::new(&device, optimizer, 5).unwrap();
            state.step(&device, 0.1, &mut params, &mut grads, Span::new(1, 2)).unwrap();
            let after = params.to_vec(&device, 0, 5).unwrap();
            assert_eq!((after[0], after[3], after[4]), (1.0, 1.0, 1.0), "{optimizer}");
            assert!(after[1] < 1.0 && after[1] == after[2], "{optimizer}: {after:?}");
        }
    }
}

#[test]
fn a_rate_of_0_changes_no_parameter() {
    let device = towers_tensor_cpu::device(1);
    for optimizer in all_kinds() {
        let mut params = upload(&device, &[1.0, -3.0]);
        let mut state = OptimizerState::new(&device, optimizer, 2).unwrap();
        state.step(&device, 0.0, &mut params, &mut upload(&device, &[0.5, 0.0]), Span::new(0, 2)).unwrap();
        assert_eq!(params.to_vec(&device, 0, 2).unwrap(), [1.0, -3.0], "{optimizer}");
    }
}

#[test]
fn names_and_sizes_of_the_memory() {
    let device = towers_tensor_cpu::reference();
    let named = |optimizer: Optimizer| {
        let state = OptimizerState::new(&device, optimizer, 3).unwrap();
        let names = state.names_of("a").iter().copied();
        let arenas: Vec<_> = names.zip(state.arenas().map(Storage::len)).collect();
        (arenas, state.steps(&device).unwrap())
    };
    assert_eq!(named(Sgd::keras().into()), (vec![], None));
    assert_eq!(named(Sgd::pytorch().momentum(0.5).into()), (vec![("velocity", 3)], None));
    assert_eq!(named(Rmsprop::keras3().into()), (vec![("mean_square", 3)], None));
    assert_eq!(named(Adam::keras().into()), (vec![("mean", 3), ("mean_square", 3)], Some(0.0)));
}

#[test]
fn refusals() {
    let device = towers_tensor_cpu::device(1);
    let span = Span::new(0, 2);
    let (mut params, mut grads) = (upload(&device, &[1.0; 2]), upload(&device, &[1.0; 2]));
    let mut state = OptimizerState::new(&device, Rmsprop::keras2(), 2).unwrap();

    for lr in [f64::NAN, f64::INFINITY, -0.1, 1e300] {
        let error = state.step(&device, lr, &mut params, &mut grads, span).unwrap_err();
        assert!(matches!(error, Error::Optimizer(towers_optim::Error::LearningRate { .. })), "{error}");
    }
    let error = state.import(&device, &[0.0; 3]).unwrap_err();
    assert!(error.to_string().starts_with("mean_square: 3 values were given, but 2 are needed"), "{error}");
    let error = state.step(&towers_tensor_cpu::reference(), 0.1, &mut params, &mut grads, span).unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
    let error = state.step(&device, 0.1, &mut params, &mut grads, Span::new(1, 2)).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    let error = OptimizerState::new(&device, Sgd::keras().momentum(f32::NAN), 2).unwrap_err();
    assert!(
        matches!(error, Error::Optimizer(towers_optim::Error::Value { option: "momentum", .. })),
        "{error}"
    );
    assert_eq!(params.to_vec(&device, 0, 2).unwrap(), [1.0; 2], "a refused step changes nothing");
}

/// Matrices that are larger than their parameter, and a step over a part of one.
#[test]
fn matrices_are_whole() {
    let device = towers_tensor_cpu::device(1);
    let params = [("a", Span::new(0, 6)), ("b", Span::new(6, 2))];
    let with = |shape| {
        let state = OptimizerState::new(&device, Muon::new(), 8).unwrap();
        state.matrices([("a", shape)]).grouped(&[], params)
    };
    let error = with([4, 2]).unwrap_err().to_string();
    assert!(error.contains("a matrix"), "{error}");
    let (mut weights, mut grads) = (upload(&device, &[1.0; 8]), upload(&device, &[1.0; 8]));
    let error =
        with([2, 3]).unwrap().step(&device, 0.1, &mut weights, &mut grads, Span::new(0, 5)).unwrap_err();
    assert!(error.to_string().contains("a matrix"), "{error}");
    assert_eq!(weights.to_vec(&device, 0, 8).unwrap(), [1.0; 8]);
}

/// The same bits on any number of threads, of matrices with several parts.
#[test]
fn threads_change_no_bit_of_a_matrix() {
    let (shape, len) = ([300, 70], 300 * 70);
    let grads: Vec<f32> = (0..len).map(|k| (k as f32 * 1.7).cos()).collect();
    let run = |threads| {
        let device = towers_tensor_cpu::device(threads);
        let mut params = upload(&device, &vec![0.5; len]);
        let state = OptimizerState::new(&device, Muon::new().normalize(), len).unwrap();
        let mut state = state.matrices([("a", shape)]).grouped(&[], [("a", Span::new(0, len))]).unwrap();
        for lr in [0.1, 0.05] {
            state.step(&device, lr, &mut params, &mut upload(&device, &grads), Span::new(0, len)).unwrap();
        }
        params.to_vec(&device, 0, len).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let one = run(1);
    assert!([2, 3, 5].into_iter().all(|threads| run(threads) == one));
}

/// The length of a step from 0 under a steady gradient of 1, after 200 steps at rate 1, when the rate drops to 0.1.
fn after_a_drop(optimizer: Sgd) -> f32 {
    let device = towers_tensor_cpu::reference();
    let (mut params, mut grads) = (upload(&device, &[0.0]), upload(&device, &[1.0]));
    let mut state = OptimizerState::new(&device, optimizer, 1).unwrap();
    for _ in 0..200 {
        state.step(&device, 1.0, &mut params, &mut grads, Span::new(0, 1)).unwrap();
    }
    device.upload(&[0.0], &mut params, 0).unwrap();
    state.step(&device, 0.1, &mut params, &mut grads, Span::new(0, 1)).unwrap();
    -params.to_vec(&device, 0, 1).unwrap()[0]
}

#[test]
fn a_drop_of_the_rate_is_felt_later_in_keras() {
    let (keras, pytorch) = (Sgd::keras().momentum(0.9), Sgd::pytorch().momentum(0.9));
    let ratio = after_a_drop(keras) / after_a_drop(pytorch);
    assert!((ratio - 9.1).abs() < 1e-3, "{ratio}");
}

#[test]
fn epsilon_inside_of_the_root_shortens_small_steps() {
    let device = towers_tensor_cpu::reference();
    let length = |rule: Rmsprop, gradient: f32| {
        let mut params = upload(&device, &[0.0]);
        let mut state = OptimizerState::new(&device, rule, 1).unwrap();
        state.import(&device, &[gradient * gradient]).unwrap();
        state.step(&device, 1.0, &mut params, &mut upload(&device, &[gradient]), Span::new(0, 1)).unwrap();
        -params.to_vec(&device, 0, 1).unwrap()[0]
    };
    for (gradient, shorter) in [(1e-2, 0.0005), (1e-3, 0.0464), (1e-4, 0.698)] {
        let ratio = length(Rmsprop::keras3(), gradient) / length(Rmsprop::keras2(), gradient);
        assert!((1.0 - ratio - shorter).abs() < 5e-4, "{gradient}: {ratio}");
    }
}

#[test]
fn keras_epsilon_weighs_more_in_the_first_steps_of_adam() {
    let device = towers_tensor_cpu::reference();
    let length = |rule: Adam| {
        let (mut params, mut grads) = (upload(&device, &[0.0]), upload(&device, &[1e-5]));
        let mut state = OptimizerState::new(&device, rule, 1).unwrap();
        state.step(&device, 1.0, &mut params, &mut grads, Span::new(0, 1)).unwrap();
        -params.to_vec(&device, 0, 1).unwrap()[0]
    };
    let ratio = length(Adam::keras()) / length(Adam::pytorch().epsilon(1e-7));
    assert!((ratio - 0.767).abs() < 1e-3, "{ratio}");
}

/// Steps of several runs count once; a step that takes no parameter is none.
#[test]
fn adam_counts_its_steps() {
    let device = towers_tensor_cpu::device(1);
    let params = [("a", Span::new(0, 2)), ("b", Span::new(2, 2))];
    let groups =
        ["a:lr-multiplier=2,epochs=1".parse().unwrap(), "b:lr-multiplier=3,epochs=2".parse().unwrap()];
    let mut state = OptimizerState::new(&device, Adam::keras(), 4).unwrap().grouped(&groups, params).unwrap();
    let (mut weights, mut grads) = (upload(&device, &[1.0; 4]), upload(&device, &[0.5; 4]));
    for (epoch, expected) in [(0, 1.0), (0, 2.0), (1, 3.0), (2, 3.0)] {
        state.begin_epoch(epoch);
        state.step(&device, 0.1, &mut weights, &mut grads, Span::new(0, 4)).unwrap();
        assert_eq!(state.steps(&device).unwrap(), Some(expected), "in epoch {epoch}");
    }
}

/// A frozen group keeps its values, but Adam's means follow its gradients: its first step is as long as those of the others.
/// Its gradients have no part in a norm.
#[test]
fn a_group_may_be_frozen_at_first() {
    let device = towers_tensor_cpu::device(1);
    let params = [("a", Span::new(0, 1)), ("b", Span::new(1, 1))];
    let optimizer = Optimizer::from(Adam::keras().weight_decay(WeightDecay::Decoupled(0.1)));
    let groups = ["a:freeze-epochs=2".parse().unwrap()];
    let state = OptimizerState::new(&device, optimizer, 2).unwrap();
    let mut state = state.grouped(&groups, params).unwrap();
    let mut weights = upload(&device, &[1.0; 2]);
    let mut all = Vec::new();
    for epoch in 0..4 {
        state.begin_epoch(epoch);
        state.step(&device, 0.1, &mut weights, &mut upload(&device, &[0.5; 2]), Span::new(0, 2)).unwrap();
        all.push((state.runs(), weights.to_vec(&device, 0, 2).unwrap()));
    }
    assert_eq!(all.iter().map(|(runs, _)| *runs).collect::<Vec<_>>(), [3, 3, 2, 2]);
    assert!(all[..2].iter().all(|(_, weights)| weights[0] == 1.0), "{all:?}");
    let step = 1.0 - all[2].1[0];
    assert!((step - 0.11).abs() < 1e-5, "{step}");

    let clipped = Optimizer::from(Sgd::keras()).clip(Clip::GlobalNorm(1.0));
    let mut state = OptimizerState::new(&device, clipped, 2).unwrap().grouped(&groups, params).unwrap();
    let mut weights = upload(&device, &[0.0; 2]);
    for (epoch, expected) in [(1, [0.0, -1.0]), (2, [-0.6, -1.8])] {
        state.begin_epoch(epoch);
        let mut grads = upload(&device, &[3.0, 4.0]);
        state.step(&device, 1.0, &mut weights, &mut grads, Span::new(0, 2)).unwrap();
        assert_close(&weights.to_vec(&device, 0, 2).unwrap(), &expected, "weights");
    }
}

/// A step moves no element between two parameters of a group.
#[test]
fn groups_leave_the_gaps_between_their_parameters_alone() {
    let device = towers_tensor_cpu::device(1);
    let params = [("a", Span::new(0, 2)), ("b", Span::new(2, 1)), ("c", Span::new(5, 1))];
    let groups = ["*:lr-multiplier=2".parse().unwrap()];
    let mut state = OptimizerState::new(&device, Sgd::keras(), 7).unwrap().grouped(&groups, params).unwrap();
    assert_eq!(state.runs(), 2);
    let (mut weights, mut grads) = (upload(&device, &[1.0; 7]), upload(&device, &[0.25; 7]));
    state.step(&device, 1.0, &mut weights, &mut grads, Span::new(0, 7)).unwrap();
    assert_eq!(weights.to_vec(&device, 0, 7).unwrap(), [0.5, 0.5, 0.5, 1.0, 1.0, 0.5, 1.0]);
}

/// The parameters after each step, in one row, and the state after the last: its arenas, and the number of steps.
fn run(device: &Device, golden: &Value, case: &Value) -> (Vec<f32>, Vec<f32>) {
    let optimizer: Optimizer = case["optimizer"].as_str().unwrap().parse().unwrap();
    let schedule: Schedule = case["schedule"].as_str().unwrap().parse().unwrap();
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let len = initial.len();

    let (mut params, mut dparams) = (device.alloc(len).unwrap(), device.alloc(len).unwrap());
    device.upload(&initial, &mut params, 0).unwrap();
    let mut state = OptimizerState::new(device, optimizer, len).unwrap();
    let mut history = Vec::new();
    for (step, grad) in grads.chunks(len).enumerate() {
        device.upload(grad, &mut dparams, 0).unwrap();
        let progress =
            Progress::at_step(step as u64, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
        let lr = schedule.lr(case["lr"].as_f64().unwrap(), &progress);
        state.step(device, lr, &mut params, &mut dparams, Span::new(0, len)).unwrap();
        history.extend(params.to_vec(device, 0, len).unwrap());
    }
    (history, state.export(device).unwrap())
}

fn check_optimizers(device: &Device) {
    let golden = golden();
    let old = &keras2()["optimizers"];
    let lists =
        [&golden["optimizers"], &golden["nadam"], &golden["lion"], old].map(|list| list.as_array().unwrap());
    assert_eq!(lists.map(Vec::len), [63, 15, 6, 13]);
    for case in lists.into_iter().flatten() {
        let what = format!(
            "{} of {} with {} on {}",
            case["optimizer"],
            case["source"],
            case["schedule"],
            device.kind()
        );
        let (params, state) = run(device, &golden, case);
        assert_close(&params, &f32s(&case["params"]), &what);
        assert_close(&state, &f32s(&case["state"]), &what);
    }
}

#[test]
fn ten_steps_on_the_reference() {
    check_optimizers(&towers_tensor_cpu::reference());
}

#[test]
fn ten_steps_on_the_cpu() {
    check_optimizers(&towers_tensor_cpu::device(2));
}

/// PyTorch's parameter groups, some of which are trained for a while only, with a rate that changes.
#[test]
fn ten_steps_in_groups() {
    check_groups(&load(include_str!("../../../tests/golden/optim_groups.json")));
}

/// timm's LARS and LAMB, on tensors that lie one after the other.
#[test]
fn ten_steps_with_trust_ratios() {
    check_groups(&load(include_str!("../../../tests/golden/optim_trust.json")));
}

/// PyTorch's Muon on matrices, and another rule for the rest.
#[test]
fn ten_steps_of_matrices() {
    check_groups(&load(include_str!("../../../tests/golden/optim_muon.json")));
}

fn check_groups(golden: &Value) {
    let schedule: Schedule = golden["schedule"].as_str().unwrap().parse().unwrap();
    let at = |step| Progress::at_step(step, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let mut places = Vec::new();
    for named in golden["sizes"].as_array().unwrap() {
        let from = places.last().map_or(0, |(_, at): &(&str, Span)| at.end());
        places.push((named[0].as_str().unwrap(), Span::new(from, count(&named[1]) as usize)));
    }
    let whole = Span::new(0, initial.len());
    let matrices: Vec<(String, [usize; 2])> = match &golden["matrices"] {
        Value::Null => Vec::new(),
        matrices => serde_json::from_value(matrices.clone()).unwrap(),
    };
    // Muon's iterations enlarge small singular values, and what rounding changed of them.
    let tolerance = if matrices.is_empty() { 2e-7 } else { 2e-6 };
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(2)] {
        for case in golden["cases"].as_array().unwrap() {
            let optimizer: Optimizer = case["optimizer"].as_str().unwrap().parse().unwrap();
            let groups = case["groups"].as_array().unwrap().iter();
            let groups: Vec<ParamGroup> =
                groups.map(|group| group.as_str().unwrap().parse().unwrap()).collect();
            let mut state = OptimizerState::new(&device, optimizer, whole.len)
                .unwrap()
                .matrices(matrices.iter().map(|(name, shape)| (name.as_str(), *shape)))
                .grouped(&groups, places.iter().copied())
                .unwrap();
            let (mut params, mut dparams) =
                (device.alloc(whole.len).unwrap(), device.alloc(whole.len).unwrap());
            device.upload(&initial, &mut params, 0).unwrap();
            let mut history = Vec::new();
            for (step, grad) in (0..).zip(grads.chunks(whole.len)) {
                device.upload(grad, &mut dparams, 0).unwrap();
                state.begin_epoch(at(step).epochs_done);
                let lr = schedule.lr(case["lr"].as_f64().unwrap(), &at(step));
                state.step(&device, lr, &mut params, &mut dparams, whole).unwrap();
                history.extend(params.to_vec(&device, 0, whole.len).unwrap());
            }
            let what = format!("{optimizer} with {} on {}", case["groups"], device.kind());
            assert_within(tolerance, &history, &f32s(&case["params"]), &what);
            assert_within(tolerance, &state.export(&device).unwrap(), &f32s(&case["state"]), &what);
        }
    }
}

/// Gradients of three parameters, clipped before each step.
#[test]
fn ten_steps_with_clipped_gradients() {
    let golden = load(include_str!("../../../tests/golden/optim_clip.json"));
    let mut places = Vec::new();
    for size in golden["sizes"].as_array().unwrap() {
        let from = places.last().map_or(0, |(_, at): &(&str, Span)| at.end());
        places.push(("a parameter", Span::new(from, count(size) as usize)));
    }
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let whole = Span::new(0, initial.len());
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(2)] {
        for case in golden["cases"].as_array().unwrap() {
            let optimizer: Optimizer = case["optimizer"].as_str().unwrap().parse().unwrap();
            let state = OptimizerState::new(&device, optimizer, whole.len).unwrap();
            let mut state = state.grouped(&[], places.iter().copied()).unwrap();
            let (mut params, mut history) = (upload(&device, &initial), Vec::new());
            for grads in grads.chunks(whole.len) {
                let lr = golden["lr"].as_f64().unwrap();
                state.step(&device, lr, &mut params, &mut upload(&device, grads), whole).unwrap();
                history.extend(params.to_vec(&device, 0, whole.len).unwrap());
            }
            let what = format!("{optimizer} of {} on {}", case["source"], device.kind());
            // Numbers of about 1, of which parameters of 0.01 are left.
            assert_within(5e-7, &history, &f32s(&case["params"]), &what);
        }
    }
}

/// A frozen group has no part in a norm. Without the names of parameters there is a single norm.
#[test]
fn norms_are_of_the_parameters_that_are_trained() {
    let device = towers_tensor_cpu::device(1);
    let optimizer = Optimizer::from(Sgd::keras()).clip(Clip::GlobalNorm(1.0));
    let params = [("a", Span::new(0, 1)), ("b", Span::new(1, 1))];
    let groups = ["a:epochs=1".parse().unwrap()];
    let mut state = OptimizerState::new(&device, optimizer, 2).unwrap().grouped(&groups, params).unwrap();
    let mut weights = upload(&device, &[0.0; 2]);
    for (epoch, expected) in [(0, [-0.6, -0.8]), (1, [-0.6, -1.8])] {
        state.begin_epoch(epoch);
        let mut grads = upload(&device, &[3.0, 4.0]);
        state.step(&device, 1.0, &mut weights, &mut grads, Span::new(0, 2)).unwrap();
        assert_close(&weights.to_vec(&device, 0, 2).unwrap(), &expected, "weights");
    }
    let by_norm = Optimizer::from(Sgd::keras()).clip(Clip::Norm(1.0));
    let mut state = OptimizerState::new(&device, by_norm, 2).unwrap();
    let (mut weights, mut grads) = (upload(&device, &[0.0; 2]), upload(&device, &[3.0, 4.0]));
    state.step(&device, 1.0, &mut weights, &mut grads, Span::new(0, 2)).unwrap();
    assert_close(&weights.to_vec(&device, 0, 2).unwrap(), &[-0.6, -0.8], "weights");
}

/// A frozen group is not moved and has no part in the norm; parameters come back to the last bit. The norm of the step's own
/// clipping is that of its gradients, those of the second pass.
#[test]
fn ascents_are_of_the_parameters_that_are_trained() {
    for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(1)] {
        let optimizer = Optimizer::from(Sgd::keras()).clip(Clip::GlobalNorm(1.0));
        let params = [("a", Span::new(0, 1)), ("b", Span::new(1, 1)), ("c", Span::new(2, 1))];
        let groups = ["a:epochs=1".parse().unwrap()];
        let state = OptimizerState::new(&device, optimizer, 3).unwrap();
        let state = state.sharpness_aware(&device, Sam::new(0.5)).unwrap();
        let mut state = state.grouped(&groups, params).unwrap();
        assert!(state.is_sharpness_aware());
        let mut weights = upload(&device, &[-0.0; 3]);
        for (epoch, above, after) in
            [(0, [0.3, 0.4, 0.0], [-0.0, -0.6, -0.8]), (1, [0.0, -0.1, -0.8], [-0.0, -1.2, -1.6])]
        {
            state.begin_epoch(epoch);
            let before = weights.to_vec(&device, 0, 3).unwrap();
            state.ascend(&device, &mut weights, &upload(&device, &[3.0, 4.0, 0.0])).unwrap();
            assert_close(&weights.to_vec(&device, 0, 3).unwrap(), &above, "above");
            state.descend(&device, &mut weights).unwrap();
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&weights.to_vec(&device, 0, 3).unwrap()), bits(&before));
            let mut grads = upload(&device, &[0.0, 3.0, 4.0]);
            state.step(&device, 1.0, &mut weights, &mut grads, Span::new(0, 3)).unwrap();
            assert_close(&weights.to_vec(&device, 0, 3).unwrap(), &after, "weights");
        }
        assert!(state.export(&device).unwrap().is_empty(), "nothing of it is saved");
        let mut plain = OptimizerState::new(&device, optimizer, 3).unwrap();
        plain.ascend(&device, &mut weights, &upload(&device, &[3.0, 4.0, 0.0])).unwrap();
        plain.descend(&device, &mut weights).unwrap();
        assert_close(&weights.to_vec(&device, 0, 3).unwrap(), &[-0.0, -1.2, -1.6], "no ascent");
    }
}
