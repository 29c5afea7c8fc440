//! The steps of a recipe equal those of its source: loss, rates, momentum, groups, average.

use crate::recipe;
use crate::run::average::Average;
use serde_json::Value;
use towers_layers::{
    AveragePooling2D, BatchNormalization, Conv2D, Dense, Draws, Flatten, Graph, Mode, Network, Rescaling,
};
use towers_models::Model;
use towers_optim::Progress;
use towers_program::{Activation, Device};

const BATCH: usize = 8;

/// As in `tests/golden/airbench_steps.py`, with this factor of the scores.
fn model(factor: f32) -> Model {
    let mut graph = Graph::new("small", [8, 8, 3]);
    let x =
        graph.add_named("whitening", Conv2D::new(4, 3).activation(Activation::Relu), graph.input()).unwrap();
    let x = graph.add(Conv2D::new(6, 3).use_bias(false), x).unwrap();
    let norm = BatchNormalization::new().momentum(0.6).epsilon(1e-12).scale(false);
    let x = graph.add(norm.activation(Activation::Relu), x).unwrap();
    let x = graph.add(AveragePooling2D::new(4), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let x = graph.add(Dense::new(10).use_bias(false), x).unwrap();
    let logits = graph.add(Rescaling::new(factor), x).unwrap();
    Model::new(graph, logits)
}

fn sines(count: usize, phase: f64, size: f64) -> Vec<f32> {
    (0..count).map(|k| (size * (1.7 * k as f64 + phase).sin()) as f32).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// Twelve epochs of one batch each, against PyTorch. The rates rise and fall, the first bias is trained for
/// three epochs, and averages follow the fifth, tenth and last one.
#[test]
fn airbench94_steps_as_its_source() {
    let golden = include_str!("../../../../tests/golden/airbench_steps.json");
    let cpu = towers_tensor_cpu::device(1);
    steps_as_its_source("airbench94", golden, 12, &model(1.0 / 9.0), &cpu, 2e-5);
}

/// Eight epochs of one batch each, against PyTorch. The rates fall, the first bias is trained for three epochs.
#[test]
fn airbench94_muon_steps_as_its_source() {
    let golden = include_str!("../../../../tests/golden/airbench_muon_steps.json");
    // Newton-Schulz iterations enlarge what rounding to f32 changed.
    for (device, tolerance) in [(towers_tensor_cpu::reference(), 2e-6), (towers_tensor_cpu::device(1), 1e-4)]
    {
        steps_as_its_source("airbench94-muon", golden, 8, &model(1.0 / 256.0), &device, tolerance);
    }
}

fn steps_as_its_source(
    name: &str,
    golden: &str,
    epochs: u64,
    model: &Model,
    device: &Device,
    tolerance: f32,
) {
    let golden: Value = serde_json::from_str(golden).unwrap();
    let mut config = recipe(name).unwrap();
    config.training.epochs = epochs;
    let mut network = model.build(device, BATCH, Mode::Training).unwrap();
    network.init(1).unwrap();
    let named = |name: &str| floats(&golden["shown"][0][name]).len();
    for (phase, name) in
        ["whitening/kernel", "whitening/bias", "conv2d/kernel", "batch_normalization/beta", "dense/kernel"]
            .into_iter()
            .enumerate()
    {
        let size = if name.ends_with("kernel") { 0.4 } else { 0.0 };
        let slot = network.arena().slots().iter().find(|slot| slot.name == name).unwrap().clone();
        assert_eq!(slot.span.len, named(name));
        network.arena_mut().load(device, &slot, &sines(slot.span.len, phase as f64, size)).unwrap();
    }
    let images = sines(BATCH * 8 * 8 * 3, 0.5, 1.0);
    network.set_input(&images, &(0..BATCH as u32).collect::<Vec<_>>()).unwrap();

    let mut optimizer = config.optimizer_on(model, &network).unwrap();
    let mut average = config.training.ema.map(|ema| Average::new(ema, &network).unwrap());
    let mut shown = golden["shown"].as_array().unwrap().iter().peekable();
    for (step, expected) in (0..config.training.epochs).zip(floats(&golden["losses"])) {
        let at = |step| Progress::at_step(step, 1, config.training.epochs);
        optimizer.begin_epoch(step);
        let draws = Draws { seed: 1, step, first_sample: 0 };
        network.train_pass(draws, config.training.label_smoothing as f32, BATCH).unwrap();
        let arena = network.arena();
        let loss = arena.grads.to_vec(device, arena.metrics.offset, 1).unwrap()[0] / BATCH as f32;
        assert!((loss - expected).abs() < 1e-5, "step {step}: a loss of {loss}, not {expected}");
        network.finish_step(BATCH).unwrap();
        let arena = network.arena_mut();
        let lr = config.lr_at(BATCH, &at(step));
        optimizer.step(device, lr, &mut arena.params, &mut arena.grads, arena.trainable).unwrap();
        if let Some(average) = &mut average {
            average.after(&at(step + 1), &mut network).unwrap();
        }
        if let Some(expected) = shown.next_if(|shown| shown["step"] == step + 1) {
            assert_shown(&network, expected, step + 1, tolerance);
        }
    }
    assert!(shown.next().is_none());
}

fn assert_shown(network: &Network, expected: &Value, step: u64, tolerance: f32) {
    let arena = network.arena();
    let mut seen = 0;
    for slot in arena.slots() {
        let Some(expected) = expected.get(&slot.name) else { continue };
        let got = arena.storage(slot).to_vec(network.device(), slot.span.offset, slot.span.len).unwrap();
        for (got, expected) in got.iter().zip(floats(expected)) {
            assert!(
                (got - expected).abs() < tolerance,
                "{} after step {step}: {got}, not {expected}",
                slot.name
            );
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
}
