//! Small networks as the packages themselves write them: tests/golden/real_files.py builds and saves them.

use crate::keras_models::{logits, numbers};
use interchange::Imported;
use interchange::keras::KerasWeights;
use interchange::onnx::OnnxNetwork;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

#[test]
fn networks_of_other_packages_have_their_scores() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/real");
    let all = fs::read(folder.join("scores.json")).unwrap();
    let all: BTreeMap<String, Vec<f64>> = serde_json::from_slice(&all).unwrap();
    assert!(all.len() >= 12);
    let files = fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, all.len() + 1, "files without scores");
    let (images, mut differ) = (images(), Vec::new());
    let pixels: Vec<f32> = images.iter().map(|x| x * 85.0 + 128.0).collect();
    for (name, expected) in &all {
        let file = folder.join(name);
        let is_onnx = name.ends_with(".onnx");
        let built =
            |network: &Imported| network.architecture.build(&network.name, [SIDE, SIDE, 3], 5).unwrap();
        let (model, tensors) = if is_onnx {
            let graph = OnnxNetwork::read(&file).unwrap();
            let model = built(graph.network());
            let tensors = graph.assign(&model.steps()).unwrap();
            (model, tensors)
        } else {
            let weights = KerasWeights::read(&file).unwrap();
            let model = built(weights.network().unwrap());
            let tensors = weights.assign(&model.steps()).unwrap();
            (model, tensors)
        };
        let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        for device in [tensor_cpu::reference(), tensor_cpu::device(1)] {
            let got = logits(&model, &tensors, if is_onnx { &images } else { &pixels }, &device);
            assert_eq!(got.len(), expected.len(), "{name}");
            let far = got.iter().zip(expected).map(|(got, x)| (f64::from(*got) - x).abs());
            let difference = far.fold(0.0, f64::max) / largest;
            println!("{name} on {}: {difference:.1e}", device.kind());
            if difference.is_nan() || difference > 1e-4 {
                differ.push(format!("{name} on {}: {difference:.1e}", device.kind()));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
