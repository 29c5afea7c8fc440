//! Against Keras 2.3.1, Keras 3 and PyTorch: `tests/golden/optim.py`, `optim_keras2.py` and `optim_groups.py` made the values.
#![allow(clippy::unwrap_used)]

use optim::{Optimizer, OptimizerState, ParamGroup, Progress, Schedule};
use program::{Device, Span};
use serde_json::Value;

fn load(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn golden() -> Value {
    load(include_str!("../../../tests/golden/optim.json"))
}

fn keras2() -> Value {
    load(include_str!("../../../tests/golden/optim_keras2.json"))
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn f32s(value: &Value) -> Vec<f32> {
    floats(value).into_iter().map(|x| x as f32).collect()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
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
        state.step(device, lr, &mut params, &dparams, Span::new(0, len)).unwrap();
        history.extend(params.to_vec(device, 0, len).unwrap());
    }
    (history, state.export(device).unwrap())
}

/// Ten steps in f32 lose a few units in the last place of the largest number on the way.
fn assert_close(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let tolerance = 2e-6 * expected.abs() + 2e-7;
        assert!((got - expected).abs() <= tolerance, "{what}: element {k} is {got}, not {expected}");
    }
}

fn check_optimizers(device: &Device) {
    let golden = golden();
    let (new, old) = (golden["optimizers"].as_array().unwrap(), &keras2()["optimizers"]);
    let old = old.as_array().unwrap();
    assert_eq!((new.len(), old.len()), (63, 13));
    for case in new.iter().chain(old) {
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
    check_optimizers(&tensor_cpu::reference());
}

#[test]
fn ten_steps_on_the_cpu() {
    check_optimizers(&tensor_cpu::device(2));
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

/// PyTorch's parameter groups, some of which are trained for a while only, under a triangle that numpy drew.
#[test]
fn ten_steps_in_groups() {
    let golden = load(include_str!("../../../tests/golden/optim_groups.json"));
    let schedule: Schedule = golden["schedule"].as_str().unwrap().parse().unwrap();
    let at = |step| Progress::at_step(step, count(&golden["steps_per_epoch"]), count(&golden["epochs"]));
    for (step, factor) in (0..).zip(floats(&golden["factors"])) {
        assert!((schedule.factor(&at(step)) - factor).abs() < 1e-14, "step {step}");
    }
    let (initial, grads) = (f32s(&golden["initial"]), f32s(&golden["grads"]));
    let mut places = Vec::new();
    for named in golden["sizes"].as_array().unwrap() {
        let from = places.last().map_or(0, |(_, at): &(&str, Span)| at.end());
        places.push((named[0].as_str().unwrap(), Span::new(from, count(&named[1]) as usize)));
    }
    let whole = Span::new(0, initial.len());
    for device in [tensor_cpu::reference(), tensor_cpu::device(2)] {
        for case in golden["cases"].as_array().unwrap() {
            let optimizer: Optimizer = case["optimizer"].as_str().unwrap().parse().unwrap();
            let groups: Vec<ParamGroup> = serde_json::from_value(case["groups"].clone()).unwrap();
            let mut state = OptimizerState::new(&device, optimizer, whole.len)
                .unwrap()
                .grouped(&groups, places.iter().copied())
                .unwrap();
            let (mut params, mut dparams) =
                (device.alloc(whole.len).unwrap(), device.alloc(whole.len).unwrap());
            device.upload(&initial, &mut params, 0).unwrap();
            let mut history = Vec::new();
            for (step, grad) in (0..).zip(grads.chunks(whole.len)) {
                device.upload(grad, &mut dparams, 0).unwrap();
                state.begin_epoch(at(step).epoch);
                let lr = schedule.lr(case["lr"].as_f64().unwrap(), &at(step));
                state.step(&device, lr, &mut params, &dparams, whole).unwrap();
                history.extend(params.to_vec(&device, 0, whole.len).unwrap());
            }
            let what = format!("{optimizer} with {} on {}", case["groups"], device.kind());
            assert_close(&history, &f32s(&case["params"]), &what);
            assert_close(&state.export(&device).unwrap(), &f32s(&case["state"]), &what);
        }
    }
}
