//! Small networks as the packages themselves write them: tests/golden/real_files.py builds and saves them.

use crate::keras_models::{drop_nothing, logits, numbers};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use towers_checkpoint::Tensors;
use towers_interchange::Imported;
use towers_interchange::keras::KerasWeights;
use towers_interchange::onnx::OnnxNetwork;
use towers_layers::{Draws, Mode, Role, Slot};
use towers_models::Model;
use towers_program::Device;

const SIDE: usize = 32;

/// As `images` in the script.
fn images() -> Vec<f32> {
    let (colours, noise) = (numbers("colours", 2 * 16 * 3), numbers("noise", 2 * SIDE * SIDE * 3));
    let colour = |k: usize| {
        let (image, y, x, channel) = (k / 3 / SIDE / SIDE, k / 3 / SIDE % SIDE, k / 3 % SIDE, k % 3);
        colours[((image * 4 + y / 8) * 4 + x / 8) * 3 + channel]
    };
    noise.iter().enumerate().map(|(k, noise)| colour(k) + noise / 2.0).collect()
}

/// The model of a file without dropout, and its weights.
fn read(file: &Path) -> (Model, Tensors) {
    let built = |network: &Imported| {
        let mut architecture = network.architecture.clone();
        drop_nothing(&mut architecture);
        architecture.build(&network.name, [SIDE, SIDE, 3], 5).unwrap()
    };
    if file.extension().unwrap() == "onnx" {
        let graph = OnnxNetwork::read(file).unwrap();
        let model = built(graph.network());
        let tensors = graph.assign(&model.steps()).unwrap();
        (model, tensors)
    } else {
        let weights = KerasWeights::read(file).unwrap();
        let model = built(weights.network().unwrap());
        let tensors = weights.assign(&model.steps()).unwrap();
        (model, tensors)
    }
}

/// The norms of the gradients of all parameters in a training step, in ascending order.
fn gradients(model: &Model, tensors: &Tensors, images: &[f32], device: &Device) -> Vec<f64> {
    let mut network = model.build(device, 2, Mode::Training).unwrap();
    let slots = network.arena().slots().to_vec();
    for slot in &slots {
        network.arena_mut().load(device, slot, tensors.get(&slot.name).unwrap().data()).unwrap();
    }
    network.set_input(images, &[0, 3]).unwrap();
    network.train_pass(Draws { seed: 0, step: 0, first_sample: 0 }, 0.0, 2).unwrap();
    let norm = |slot: &Slot| {
        let values = network.arena().grads.to_vec(device, slot.span.offset, slot.span.len).unwrap();
        values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    let mut norms: Vec<f64> = slots.iter().filter(|slot| slot.role == Role::Trainable).map(norm).collect();
    norms.sort_by(f64::total_cmp);
    norms
}

/// The largest difference, relative to the largest number.
fn difference(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let differ = got.iter().zip(expected).map(|(got, x)| (got - x).abs());
    // In this order a NaN is the largest.
    differ.max_by(f64::total_cmp).unwrap() / largest
}

#[test]
fn networks_of_other_packages_have_their_scores_and_gradients() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/real");
    let all = fs::read(folder.join("results.json")).unwrap();
    let all: BTreeMap<String, BTreeMap<String, Vec<f64>>> = serde_json::from_slice(&all).unwrap();
    let differentiated = all.values().filter(|expected| expected.contains_key("gradients")).count();
    assert!(all.len() >= 12 && differentiated >= 8, "{differentiated} of {}", all.len());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), all.len() + 1, "files without results");
    let (images, mut differ) = (images(), Vec::new());
    let pixels: Vec<f32> = images.iter().map(|x| x * 85.0 + 128.0).collect();
    for (name, expected) in &all {
        let (model, tensors) = read(&folder.join(name));
        let images = if name.ends_with(".onnx") { &images } else { &pixels };
        for device in [towers_tensor_cpu::reference(), towers_tensor_cpu::device(1)] {
            let mut check = |what: &str, got: &[f64], expected: &[f64], bound: f64| {
                let difference = difference(got, expected);
                let line = format!("{name}, {what} on {}: {difference:.1e}", device.kind());
                println!("{line}");
                if difference.is_nan() || difference > bound {
                    differ.push(line);
                }
            };
            let scores = logits(&model, &tensors, images, &device);
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            check("scores", &scores, &expected["scores"], 2e-5);
            if let Some(expected) = expected.get("gradients") {
                check("gradients", &gradients(&model, &tensors, images, &device), expected, 2e-5);
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
