//! Against Keras 2.3.1, Keras 3 and PyTorch: `tests/golden/optim.py`, `optim_keras2.py` and `optim_groups.py` made the values. The crate `program` compares devices.
#![allow(clippy::unwrap_used)]

use crate::values::*;
use serde_json::Value;
use towers_optim::{Optimizer, ParamGroup, Progress, Schedule, UpdateRule};

/// The parameters after each step, in one row, and the state after the last: its arenas, and the number of steps.
fn run(golden: &Value, case: &Value) -> (Vec<f32>, Vec<f32>) {
    let Optimizer { rule, .. } = case["optimizer"].as_str().unwrap().parse().unwrap();
    let schedule: Schedule = case["schedule"].as_str().unwrap().parse().unwrap();
    let (mut params, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let len = params.len();
    let mut state = [0, 1].map(|k| vec![0.0; if k < rule.state().len() { len } else { 0 }]);
    let (mut history, mut taken) = (Vec::new(), 0);
    for grads in grads.chunks(len) {
        let progress = Progress::at_step(taken, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
        let lr = Optimizer::rate(schedule.lr(case["lr"].as_f64().unwrap(), &progress)).unwrap();
        taken += 1;
        rule.step(lr, taken, &mut params, grads, state.each_mut().map(Vec::as_mut_slice));
        history.extend(&params);
    }
    let mut left = state.concat();
    left.extend(rule.counts_steps().then_some(taken as f32));
    (history, left)
}

#[test]
fn ten_steps() {
    let golden = golden();
    let old = &keras2()["optimizers"];
    let lists =
        [&golden["optimizers"], &golden["nadam"], &golden["lion"], old].map(|list| list.as_array().unwrap());
    assert_eq!(lists.map(Vec::len), [63, 15, 6, 13]);
    for case in lists.into_iter().flatten() {
        let what = format!("{} of {} with {}", case["optimizer"], case["source"], case["schedule"]);
        let (params, state) = run(&golden, case);
        assert_close(&params, &f32s(&case["params"]), &what);
        assert_close(&state, &f32s(&case["state"]), &what);
    }
}

#[test]
fn rates() {
    let golden = golden();
    let (base, steps_per_epoch) = (golden["base"].as_f64().unwrap(), count(&golden["steps_per_epoch"]));
    for case in golden["schedules"].as_array().unwrap() {
        let schedule: Schedule = case["schedule"].as_str().unwrap().parse().unwrap();
        let stride = if case["tick"] == "epoch" { steps_per_epoch } else { 1 };
        // PyTorch computes rates in f64, but some of them step by step; Keras in f32.
        let tolerance = if case["source"] == "pytorch" { 1e-14 } else { 3e-7 };
        for (tick, expected) in floats(&case["lr"]).into_iter().enumerate() {
            let progress = Progress::at_step(tick as u64 * stride, steps_per_epoch, count(&golden["epochs"]));
            let lr = schedule.lr(base, &progress);
            let close = (lr - expected).abs() <= tolerance * expected.max(base);
            assert!(close, "{schedule} of {} at {tick}: {lr}, not {expected}", case["source"]);
        }
    }
}

/// The tutorial's callback hands Keras a rate that Keras rounds to f32: so do we, to the same bits.
#[test]
fn poly_decay_is_the_tutorials_to_the_bit() {
    let golden = golden();
    let case = golden["schedules"].as_array().unwrap().last().unwrap();
    assert_eq!(case["source"], "keras 3");
    let schedule: Schedule = "poly:power=2.5".parse().unwrap();
    let rates: Vec<f32> = (0..5).map(|k| schedule.lr(0.1, &Progress::at_step(k * 2, 2, 5)) as f32).collect();
    assert_eq!(rates, f32s(&case["lr"]));
}

/// A triangle that numpy drew.
#[test]
fn a_triangle() {
    let golden = load(include_str!("../../../tests/golden/optim_groups.json"));
    let schedule: Schedule = golden["schedule"].as_str().unwrap().parse().unwrap();
    for (step, factor) in (0..).zip(floats(&golden["factors"])) {
        let at = Progress::at_step(step, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
        assert!((schedule.factor(&at) - factor).abs() < 1e-14, "step {step}");
    }
}

/// timm's LARS and LAMB on tensors: `tests/golden/optim_trust.py`.
#[test]
fn ten_steps_with_trust_ratios() {
    let golden = load(include_str!("../../../tests/golden/optim_trust.json"));
    let sizes: Vec<(String, usize)> = serde_json::from_value(golden["sizes"].clone()).unwrap();
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let schedule: Schedule = golden["schedule"].as_str().unwrap().parse().unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let Optimizer { rule, clip, .. } = case["optimizer"].as_str().unwrap().parse().unwrap();
        let groups: Vec<ParamGroup> = case["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group.as_str().unwrap().parse().unwrap())
            .collect();
        let (mut params, mut history) = (initial.clone(), Vec::new());
        let mut state = [0, 1].map(|k| vec![0.0; if k < rule.state().len() { initial.len() } else { 0 }]);
        for (step, grads) in (0..).zip(grads.chunks(initial.len())) {
            let mut grads = grads.to_vec();
            if let Some(clip) = clip {
                clip.apply(&mut [&mut grads]);
            }
            let at = Progress::at_step(step, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
            let lr = schedule.lr(case["lr"].as_f64().unwrap(), &at) as f32;
            let mut from = 0;
            for (name, size) in &sizes {
                let range = from..from + size;
                from = range.end;
                let own = ParamGroup::of(&groups, name);
                let rule = rule
                    .with_weight_decay(own.and_then(|own| own.weight_decay).unwrap_or(rule.weight_decay()));
                let lr = lr * own.map_or(1.0, |own| own.lr_multiplier);
                let state = state
                    .each_mut()
                    .map(|all| if all.is_empty() { &mut [] } else { &mut all[range.clone()] });
                rule.step(lr, step + 1, &mut params[range.clone()], &grads[range], state);
            }
            history.extend(&params);
        }
        let what = format!("{}", case["optimizer"]);
        assert_close(&history, &f32s(&case["params"]), &what);
        let mut left = state.concat();
        left.extend(rule.counts_steps().then_some(10.0));
        assert_close(&left, &f32s(&case["state"]), &what);
    }
}

/// PyTorch's Muon on matrices, and another rule for the rest: `tests/golden/optim_muon.py`.
#[test]
fn ten_steps_of_matrices() {
    let golden = load(include_str!("../../../tests/golden/optim_muon.json"));
    let sizes: Vec<(String, usize)> = serde_json::from_value(golden["sizes"].clone()).unwrap();
    let matrices: Vec<(String, [usize; 2])> = serde_json::from_value(golden["matrices"].clone()).unwrap();
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let schedule: Schedule = golden["schedule"].as_str().unwrap().parse().unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let optimizer: Optimizer = case["optimizer"].as_str().unwrap().parse().unwrap();
        let (UpdateRule::Muon(muon), Some(rest)) = (optimizer.rule, optimizer.rest) else {
            panic!("{optimizer}")
        };
        let groups = case["groups"].as_array().unwrap().iter();
        let groups: Vec<ParamGroup> = groups.map(|group| group.as_str().unwrap().parse().unwrap()).collect();
        let (mut params, mut history) = (initial.clone(), Vec::new());
        let mut state = [0, 1].map(|_| vec![0.0; initial.len()]);
        for (step, grads) in (0..).zip(grads.chunks(initial.len())) {
            let at = Progress::at_step(step, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
            let lr = schedule.lr(case["lr"].as_f64().unwrap(), &at) as f32;
            let mut from = 0;
            for (name, size) in &sizes {
                let range = from..from + size;
                from = range.end;
                let own = ParamGroup::of(&groups, name);
                let lr = lr * own.map_or(1.0, |own| own.lr_multiplier);
                let decay = own.and_then(|own| own.weight_decay);
                let (params, grads) = (&mut params[range.clone()], &grads[range.clone()]);
                let [first, second] = state.each_mut().map(|all| &mut all[range.clone()]);
                if let Some((_, shape)) = matrices.iter().find(|(matrix, _)| matrix == name) {
                    let muon = muon.weight_decay(decay.unwrap_or(muon.weight_decay));
                    muon.step(lr, *shape, params, grads, first);
                } else {
                    let rule = rest.rule.with_weight_decay(decay.unwrap_or(rest.rule.weight_decay()));
                    rule.step(lr * rest.lr_multiplier, step + 1, params, grads, [first, second]);
                }
            }
            history.extend(&params);
        }
        // Iterations enlarge small singular values, and what rounding changed of them.
        assert_within(2e-6, &history, &f32s(&case["params"]), &optimizer.to_string());
        let arenas = optimizer.rules().map(|rule| rule.state().len()).max().unwrap();
        let mut left = state[..arenas].concat();
        left.extend(rest.rule.counts_steps().then_some(10.0));
        assert_within(2e-6, &left, &f32s(&case["state"]), &optimizer.to_string());
    }
}

/// Gradients of three parameters, clipped before each step: `tests/golden/optim_clip.py`.
#[test]
fn ten_steps_with_clipped_gradients() {
    let golden = load(include_str!("../../../tests/golden/optim_clip.json"));
    let sizes: Vec<usize> = golden["sizes"].as_array().unwrap().iter().map(|n| count(n) as usize).collect();
    let split = |all: &[f32]| {
        let mut rest = all;
        let parts = sizes.iter().map(|&n| rest.split_off(..n).unwrap().to_vec());
        parts.collect::<Vec<Vec<f32>>>()
    };
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let lr = golden["lr"].as_f64().unwrap() as f32;
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 16);
    for case in cases {
        let Optimizer { rule, clip, .. } = case["optimizer"].as_str().unwrap().parse().unwrap();
        let mut params = split(&initial);
        let remembered = |k, n| vec![0.0; if k < rule.state().len() { n } else { 0 }];
        let mut state: Vec<_> = sizes.iter().map(|&n| [0, 1].map(|k| remembered(k, n))).collect();
        let mut history = Vec::new();
        for (t, grads) in (1..).zip(grads.chunks(initial.len())) {
            let mut grads = split(grads);
            let mut all: Vec<&mut [f32]> = grads.iter_mut().map(Vec::as_mut_slice).collect();
            clip.unwrap().apply(&mut all);
            for ((params, grads), state) in params.iter_mut().zip(&grads).zip(&mut state) {
                rule.step(lr, t, params, grads, state.each_mut().map(Vec::as_mut_slice));
                history.extend(&*params);
            }
        }
        let what = format!("{} of {}", case["optimizer"], case["source"]);
        // Numbers of about 1, of which parameters of 0.01 are left.
        assert_within(5e-7, &history, &f32s(&case["params"]), &what);
    }
}
