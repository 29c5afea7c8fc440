//! Models inside of models, as tf.keras 2.15 writes them: tests/golden/keras2_models.py.

use crate::keras_models::{CLASSES, differences, values};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use towers_checkpoint::Tensors;
use towers_interchange::keras::{KerasWeights, is_model_text, read_network};
use towers_layers::Step;
use towers_models::Architecture;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn models() -> Vec<Value> {
    serde_json::from_slice(&fs::read(golden("keras2_models.json")).unwrap()).unwrap()
}

/// The configuration of the model in the files `transfer.keras2.*`, written to a folder.
fn transfer(folder: &Path) -> PathBuf {
    let path = folder.join("transfer.json");
    let of = |entry: &&Value| entry["model"] == "transfer";
    fs::write(&path, models().iter().find(of).unwrap()["config"].to_string()).unwrap();
    path
}

fn steps(architecture: &Architecture) -> Vec<Step> {
    architecture.build("transfer", [8, 8, 3], CLASSES).unwrap().steps()
}

/// Every layer has the weights that the script gave it by its name.
fn check(tensors: &Tensors, steps: &[Step]) {
    let specs = steps.iter().flat_map(|step| step.params.iter().map(move |spec| (step, spec)));
    for (step, spec) in specs {
        let name = format!("{}/{}", step.name, spec.name);
        assert_eq!(tensors.get(&name).unwrap().data(), values(&name, &spec.shape), "{name}");
    }
}

/// Keras 2 counts the calls of an inner model from 1.
#[test]
fn models_of_keras_2_compute_what_it_computes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let models = models();
    for (device, tolerance) in [(towers_tensor_cpu::reference(), 1e-5), (towers_tensor_cpu::device(1), 1e-4)]
    {
        for entry in &models {
            let what = format!("{} on {}", entry["model"], device.kind());
            assert_eq!(differences(&what, entry, &file, &device, tolerance).0, [""; 0]);
        }
    }
    assert!(models.len() >= 11);
}

/// Keras lists the trained layers of an inner model first.
#[test]
fn layers_of_a_partly_frozen_model_have_their_own_weights() {
    let folder = tempfile::tempdir().unwrap();
    let json = transfer(folder.path());
    assert!(is_model_text(&json) && !is_model_text(&golden("keras/transfer.keras2.h5")));
    let network = read_network(&json).unwrap();
    let steps = steps(&network.architecture);
    for name in ["transfer.keras2.h5", "transfer.keras2.keras", "transfer.keras2.weights.h5"] {
        let file = golden("keras").join(name);
        let alone = KerasWeights::read(&file).unwrap();
        assert_eq!(alone.network().is_some(), name != "transfer.keras2.weights.h5");
        for weights in [alone, KerasWeights::read_for(&json, &file).unwrap()] {
            assert_eq!(weights.classes(), Some(CLASSES));
            check(&weights.assign(&steps).unwrap(), &steps);
        }
    }
}

/// In Keras 2 an adapted normalization has a counter, and the names of its tensors lack the layer's name.
#[test]
fn layers_of_several_inner_models_have_their_own_weights() {
    let weights = KerasWeights::read(&golden("keras/inner.keras2.h5")).unwrap();
    let network = weights.network().unwrap();
    let first = &network.architecture.layers[0];
    let near = |option: &str, numbers: [f64; 3]| {
        let given = first.options[option].as_array().unwrap();
        given.iter().zip(numbers).all(|(given, number)| (given.as_f64().unwrap() - number).abs() < 1e-6)
    };
    assert!(first.name == "prepared_normalization" && near("scale", [2.0, 1.0, 0.5]), "{first:?}");
    assert!(near("offset", [-0.2, -0.2, -0.15]), "{first:?}");
    let tensors = weights.assign(&steps(&network.architecture)).unwrap();
    let of = |layer: &str| tensors.get(&format!("{layer}/bias")).unwrap().data().to_vec();
    assert_eq!(["left_conv", "right_conv"].map(of), [[1.0; 2], [2.0; 2]]);
}

/// Where neither names nor shapes tell which layer is which, no order is assumed.
#[test]
fn layers_of_an_unknown_order_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut network = read_network(&transfer(folder.path())).unwrap().architecture;
    let mut rename = |from: &str, to: &str| {
        for layer in &mut network.layers {
            let names = std::iter::once(&mut layer.name).chain(&mut layer.inputs);
            names.filter(|name| *name == from).for_each(|name| *name = to.to_owned());
        }
        let weights = KerasWeights::read(&golden("keras/transfer.keras2.weights.h5")).unwrap();
        weights.assign(&steps(&network)).map_err(|error| error.to_string())
    };
    let told = rename("base_block/c2", "base_block/c3").unwrap_err();
    let says = "its layers `base/block/c0` and `base/block/c1` have the same shapes, and nothing says which comes first";
    assert!(told.contains(says), "{told}");
    assert!(rename("base_block/c3", "base_block/c2").is_ok());
}

/// Layers of one shape in another order than their names say.
#[test]
fn names_that_contradict_the_order_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("plain.json");
    let dense = |name: &str| json!({"class_name": "Dense", "config": {"name": name, "units": 3}});
    let network = |names: [&str; 3]| {
        let input = json!({"class_name": "InputLayer", "config": {"name": "i", "batch_input_shape": [null, 1, 1, 3]}});
        let layers = [input, json!({"class_name": "Flatten", "config": {"name": "f"}})];
        let layers: Vec<Value> = layers.into_iter().chain(names.map(dense)).collect();
        fs::write(&json, json!({"class_name": "Sequential", "config": {"layers": layers}}).to_string())
            .unwrap();
        read_network(&json).unwrap().architecture.build("plain", [1, 1, 3], 3).unwrap().steps()
    };
    let weights = KerasWeights::read(&golden("keras/plain.keras2.weights.h5")).unwrap();
    let given = |names| weights.assign(&network(names)).map_err(|error| error.to_string());
    let of = |tensors: &Tensors, layer: &str| tensors.get(&format!("{layer}/bias")).unwrap().data()[0];
    let straight = given(["a", "b", "c"]).unwrap();
    assert_eq!(["a", "b", "c"].map(|layer| of(&straight, layer)), [1.0, 2.0, 3.0]);
    let crossed = given(["c", "a", "b"]).unwrap();
    assert_eq!(["a", "b", "c"].map(|layer| of(&crossed, layer)), [1.0, 2.0, 3.0]);
    let others = given(["x", "y", "z"]).unwrap();
    assert_eq!(["x", "y", "z"].map(|layer| of(&others, layer)), [1.0, 2.0, 3.0]);
    let told = given(["x", "a", "b"]).unwrap_err();
    let says =
        "the network's `a` would get the weights of its `b` by the order of layers, but it has an `a` too";
    assert!(told.contains(says), "{told}");
}

/// What Keras 2 always computes as in training is another network than the one that is used here.
#[test]
fn what_keras_2_computes_in_another_way_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let read = |class: &str, options: Value, node: Value| {
        let input = json!({"class_name": "InputLayer", "inbound_nodes": [],
            "config": {"name": "i", "batch_input_shape": [null, 8, 8, 3]}, "name": "i"});
        let mut config = options;
        config["name"] = "a".into();
        let layer = json!({"class_name": class, "name": "a", "config": config, "inbound_nodes": [node],
            "build_config": {"input_shape": [null, 8, 8, 3]}});
        let flat = json!({"class_name": "Flatten", "name": "f", "config": {"name": "f"}, "inbound_nodes": [[["a", 0, 0, {}]]]});
        let config = json!({"name": "m", "layers": [input, layer, flat], "input_layers": {"x": ["i", 0, 0]},
            "output_layers": [["f", 0, 0]]});
        fs::write(&file, json!({"class_name": "Functional", "config": config}).to_string()).unwrap();
        read_network(&file).map_err(|error| error.to_string())
    };
    let norm =
        |training: Value| read("BatchNormalization", json!({}), json!([["i", 0, 0, {"training": training}]]));
    assert!(norm(Value::Null).unwrap().notes.is_empty());
    assert!(norm(false.into()).unwrap().notes[0].starts_with("training=False of a is not taken over: "));
    let told = norm(true.into()).unwrap_err();
    assert!(
        told.contains("its layer `a` is called with training=True, and would work as in training"),
        "{told}"
    );
    let gelu = |approximate: bool| {
        read(
            "TFOpLambda",
            json!({"function": "nn.gelu"}),
            json!(["i", 0, 0, {"approximate": approximate, "name": null}]),
        )
    };
    assert_eq!(gelu(false).unwrap().architecture.layers[0].class, "Activation");
    let told = gelu(true).unwrap_err();
    assert!(told.ends_with("its layer `a` has approximate=true, which is not supported"), "{told}");
    let told = read("TFOpLambda", json!({"function": "math.square"}), json!(["i", 0, 0, {}])).unwrap_err();
    assert!(told.contains("its layer `a` is a TFOpLambda, which is not supported"), "{told}");
    let shaped = json!({"axis": i64::MAX});
    let told = read("BatchNormalization", shaped, json!([["i", 0, 0, {}]])).unwrap_err();
    assert!(told.ends_with("its layer `a` has axis=9223372036854775807, which is not supported"), "{told}");
}
