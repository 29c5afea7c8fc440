//! Models that `multi_gpu_model` made: tests/golden/keras_multi_gpu.py saves them with the real Keras 2.3.1.

use crate::keras_models::{compare, logits};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use towers_checkpoint::Tensors;
use towers_interchange::keras::{KerasWeights, read_network};
use towers_models::Model;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&fs::read(golden(name)).unwrap()).unwrap()
}

const NOTE: &str =
    "it is a model for 3 GPUs, as multi_gpu_model makes it: its inner model `model_1` is taken";

/// The model of a file, and its weights.
fn model(weights: &KerasWeights) -> (Model, Tensors) {
    let network = weights.network().unwrap();
    let model = network.architecture.build(&network.name, [32, 32, 3], 10).unwrap();
    let tensors = weights.assign(&model.steps()).unwrap_or_else(|error| panic!("{error}"));
    (model, tensors)
}

#[test]
fn a_model_for_several_gpus_is_its_inner_model() {
    let inner = KerasWeights::read(&golden("multi_gpu_inner.keras2.h5")).unwrap();
    let (own, parallel) = (inner.network().unwrap(), golden("multi_gpu.keras2.h5"));
    let weights = KerasWeights::read(&parallel).unwrap();
    let whole = weights.network().unwrap();
    assert_eq!((&whole.name, &whole.architecture, whole.image), (&own.name, &own.architecture, own.image));
    assert_eq!((whole.classes, &whole.compiled), (Some(10), &own.compiled));
    assert_eq!((weights.told(), inner.told()), (vec![NOTE.to_owned()], Vec::new()));
    assert_eq!([&whole.notes[0], NOTE], [NOTE; 2]);
    assert_eq!(model(&weights).1, model(&inner).1);
    let described = read_network(&golden("multi_gpu.keras2.json")).unwrap();
    assert_eq!((&described.architecture, &described.notes[0][..]), (&own.architecture, NOTE));
}

/// Layers and weights in two files, of the inner model or of the one around it. The layers have the same shapes in another order
/// than their names, so that names decide.
#[test]
fn weights_of_either_model_fit_layers_of_either() {
    let (_, expected) = model(&KerasWeights::read(&golden("multi_gpu_inner.keras2.h5")).unwrap());
    for layers in ["multi_gpu.keras2.json", "multi_gpu_inner.keras2.json"] {
        for file in [
            "multi_gpu.keras2.h5",
            "multi_gpu.keras2.weights.h5",
            "multi_gpu_relocated.keras2.h5",
            "multi_gpu_inner.keras2.h5",
        ] {
            let weights = KerasWeights::read_for(&golden(layers), &golden(file)).unwrap();
            assert_eq!(model(&weights).1, expected, "{file} for {layers}");
            let is_told = !weights.told().is_empty();
            assert_eq!(
                is_told,
                [layers, file].concat() != "multi_gpu_inner.keras2.jsonmulti_gpu_inner.keras2.h5"
            );
        }
    }
    // Without a file of layers.
    let alone = KerasWeights::read(&golden("multi_gpu.keras2.weights.h5")).unwrap();
    let says = "its weights are those of `model_1` inside of another model, as multi_gpu_model saves them";
    assert_eq!((alone.told(), alone.classes()), (vec![says.to_owned()], Some(10)));
    let network = read_network(&golden("multi_gpu_inner.keras2.json")).unwrap().architecture;
    let built = network.build("model_1", [32, 32, 3], 10).unwrap();
    assert_eq!(alone.assign(&built.steps()).unwrap(), expected);
}

#[test]
fn both_compute_what_keras_computes() {
    let expected = read("multi_gpu.json");
    let images: Vec<f32> = (0..3 * 3072).map(|k| ((k * 37 + k / 7) % 256) as f32 / 255.0).collect();
    for name in ["multi_gpu", "to_multi_gpu"] {
        let (model, tensors) = model(&KerasWeights::read(&golden(&format!("{name}.keras2.h5"))).unwrap());
        let logits = logits(&model, &tensors, &images, &towers_tensor_cpu::device(1));
        let of_picture = |logits: &[f32]| -> Vec<f32> {
            let total = logits.iter().map(|x| x.exp()).sum::<f32>().ln();
            logits.iter().map(|x| x - total).collect()
        };
        for (got, expected) in logits.chunks(10).zip(expected[name].as_array().unwrap()) {
            assert_eq!(compare(name, &of_picture(got), expected, 1e-5), None);
        }
    }
}

/// A part of such a model that is not as it should be.
#[test]
fn what_only_looks_like_slices_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let layers = |config: &mut Value| config["config"]["layers"].as_array_mut().unwrap().clone();
    let told = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut config = read("multi_gpu.keras2.json");
        let mut all = layers(&mut config);
        change(&mut all);
        config["config"]["layers"] = all.into();
        fs::write(&file, config.to_string()).unwrap();
        read_network(&file).map(|network| network.notes[0].clone()).unwrap_or_else(|error| error.to_string())
    };
    assert_eq!(told(&|_| ()), NOTE);
    // Functions by their names, and other names of the arguments.
    assert_eq!(told(&|all| all[1]["config"]["function"] = "get_slice".into()), NOTE);
    assert_eq!(told(&|all| all[2]["config"]["arguments"] = json!({"n_gpus": 3, "part": 1})), NOTE);
    let place =
        |class: &str, all: &[Value]| all.iter().position(|layer| layer["class_name"] == class).unwrap();
    let not_known = "its layer `lambda_2` is not known to cut slice 1 of 3 from the batch";
    for (what, says) in [
        (json!({"i": 2, "parts": 3}), not_known),
        (json!({"i": 1, "parts": 4}), not_known),
        (json!({"i": 1, "parts": 3, "scale": 2}), not_known),
        (json!({"a": 1, "b": 3}), not_known),
        (json!({}), not_known),
    ] {
        let told = told(&|all| all[2]["config"]["arguments"] = what.clone());
        assert!(told.contains(says) && told.contains("its layer `dense_1` puts batches together"), "{told}");
        assert!(told.ends_with("; save the model that was given to multi_gpu_model"), "{told}");
    }
    let other = told(&|all| all[2]["config"]["function"] = "double".into());
    assert!(other.contains(not_known), "{other}");
    let swapped = told(&|all| {
        let last = place("Concatenate", all);
        all[last]["inbound_nodes"][0].as_array_mut().unwrap().swap(0, 1);
    });
    assert!(swapped.contains("is not known to cut slice 0 of 3"), "{swapped}");
    let more = told(&|all| {
        all.push(json!({"class_name": "Flatten", "name": "f", "config": {"name": "f"}, "inbound_nodes": []}))
    });
    assert!(more.contains("some of its layers are no part of that"), "{more}");
    let along_channels = told(&|all| {
        let last = place("Concatenate", all);
        all[last]["config"]["axis"] = (-1).into();
    });
    assert!(along_channels.contains("is a Lambda, which is not supported"), "{along_channels}");
}
