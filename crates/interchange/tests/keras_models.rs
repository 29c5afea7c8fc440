//! Random models of Keras, built from their configuration: tests/golden/keras_models.py drew them.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use towers_checkpoint::Tensors;
use towers_interchange::keras::{KerasWeights, read_network};
use towers_layers::{Draws, Mode, Network, Role};
use towers_models::{Architecture, LayerSpec, Model};
use towers_program::Device;

const BATCH: usize = 2;
pub(crate) const CLASSES: usize = 5;

/// Numbers from -1 to 1 by the name of a tensor, as in the script.
pub(crate) fn numbers(name: &str, len: usize) -> Vec<f32> {
    let mut word = crc32(name.as_bytes()) | 1;
    let draw = |_| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(word >> 8) / f64::from(1 << 23) - 1.0) as f32
    };
    (0..len).map(draw).collect()
}

/// The checksum of ZIP archives.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1)))
    })
}

/// The values of a parameter, as `set_weights` in the script.
pub(crate) fn values(name: &str, shape: &[usize]) -> Vec<f32> {
    let numbers = numbers(name, shape.iter().product());
    let inputs: usize = shape[..shape.len() - 1].iter().product();
    let limit = (3.0 / inputs as f64).sqrt() as f32;
    let value = |x: f32| match name.rsplit('/').next() {
        Some("moving_variance") => 1.0 + 0.5 * x,
        Some("gamma") => 1.0 + 0.3 * x,
        Some("kernel") => x * limit,
        _ => 0.3 * x,
    };
    numbers.into_iter().map(value).collect()
}

/// Tells where numbers differ from those of Keras or PyTorch by more than this share of the largest.
pub(crate) fn compare(what: &str, got: &[f32], expected: &Value, tolerance: f64) -> Option<String> {
    let expected: Vec<f64> = expected.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0_f64, |scale, x| scale.max(x.abs()));
    let far = |(got, expected): &(&f32, &f64)| (f64::from(**got) - **expected).abs() > tolerance * scale;
    let (got, expected) = got.iter().zip(&expected).find(far)?;
    Some(format!("{what}: {got}, but {expected} there"))
}

/// The logits of images, with these weights.
pub(crate) fn logits(model: &Model, tensors: &Tensors, images: &[f32], device: &Device) -> Vec<f32> {
    let [h, w, c] = model.image();
    let batch = images.len() / (h * w * c);
    let mut network = model.build(device, batch, Mode::Inference).unwrap();
    for slot in network.arena().slots().to_vec() {
        network.arena_mut().load(device, &slot, tensors.get(&slot.name).unwrap().data()).unwrap();
    }
    network.set_input(images, &vec![0; batch]).unwrap();
    network.predict().unwrap();
    let logits = network.logits();
    logits.data.to_vec(device, logits.layout.offset, logits.layout.shape.len()).unwrap()
}

/// Sets the rates of dropout to 0.
pub(crate) fn drop_nothing(architecture: &mut Architecture) {
    for layer in &mut architecture.layers {
        let rate = match layer.class.as_str() {
            "Dropout" | "SpatialDropout2D" => "rate",
            "StochasticDepth" => "drop_path_rate",
            _ => continue,
        };
        layer.options[rate] = 0.0.into();
    }
}

/// The model of an entry on a device, with its weights.
fn built(entry: &Value, file: &Path, mode: Mode, device: &Device) -> Network {
    fs::write(file, entry["config"].to_string()).unwrap();
    let mut imported = read_network(file).unwrap();
    let notes = entry["notes"].as_u64().unwrap_or(0);
    assert_eq!(
        (imported.classes, imported.notes.len() as u64),
        (Some(CLASSES), notes),
        "{:?}",
        imported.notes
    );
    if mode == Mode::Training {
        drop_nothing(&mut imported.architecture);
    }
    let [h, w] = imported.image.unwrap();
    let model = imported.architecture.build(&imported.name, [h, w, 3], CLASSES).unwrap();
    let mut network = model.build(device, BATCH, mode).unwrap();
    network.init(1).unwrap();
    for slot in network.arena().slots().to_vec().iter().filter(|slot| slot.role != Role::Frozen) {
        network.arena_mut().load(device, slot, &values(&slot.name, &slot.shape)).unwrap();
    }
    let images: Vec<f32> = numbers("images", BATCH * h * w * 3).into_iter().map(|x| 2.0 * x).collect();
    network.set_input(&images, &[0, 1]).unwrap();
    network
}

/// The first differences of a model from Keras', and whether it was differentiated.
pub(crate) fn differences(
    what: &str,
    entry: &Value,
    file: &Path,
    device: &Device,
    tolerance: f64,
) -> (Vec<String>, bool) {
    let mut differ = Vec::new();
    let mut network = built(entry, file, Mode::Inference, device);
    network.predict().unwrap();
    let logits = network.logits();
    let got = logits.data.to_vec(device, logits.layout.offset, BATCH * CLASSES).unwrap();
    differ.extend(compare(what, &got, &entry["logits"], tolerance));
    let Some(gradients) = entry["gradients"].as_object() else { return (differ, false) };
    let mut network = built(entry, file, Mode::Training, device);
    network.train_pass(Draws { seed: 0, step: 0, first_sample: 0 }, 0.0, BATCH).unwrap();
    let slots = network.arena().slots().iter().filter(|slot| slot.role == Role::Trainable);
    let slots: Vec<_> = slots.cloned().collect();
    assert_eq!(slots.len(), gradients.len(), "{what}");
    for slot in slots {
        let got = network.arena().grads.to_vec(device, slot.span.offset, slot.span.len).unwrap();
        let what = format!("{what}: {}", slot.name);
        // Keras computes group normalization in f32 in any case.
        differ.extend(compare(&what, &got, &gradients[&slot.name], tolerance.max(5e-5)));
    }
    (differ, true)
}

/// The committed models, or those of a file that the script made elsewhere. Keras computed them in f64, and so does the
/// reference. Normalizations of few numbers, which these models have, make more of f32's rounding.
#[test]
fn random_models_compute_what_keras_computes() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras_models.json");
    let golden = std::env::var_os("TOWERS_KERAS_MODELS").map_or(committed, Into::into);
    let golden: Vec<Value> = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let (mut differentiated, mut differ) = (0, Vec::new());
    for (device, tolerance) in [(towers_tensor_cpu::reference(), 1e-5), (towers_tensor_cpu::device(1), 1e-4)]
    {
        for (k, entry) in golden.iter().enumerate() {
            let what = format!("model {k} on {}", device.kind());
            let (more, has_gradients) = differences(&what, entry, &file, &device, tolerance);
            differentiated += usize::from(has_gradients);
            differ.extend(more);
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(golden.len() >= 40 && differentiated >= 20);
}

/// Weights of layers in models inside of models are found by both layouts' names.
#[test]
fn weights_are_assigned_by_their_places() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    for name in ["nested.keras", "nested.h5"] {
        let weights = KerasWeights::read(&golden.join(name)).unwrap();
        let network = weights.network().unwrap();
        let model = network.architecture.build(&network.name, [8, 8, 3], CLASSES).unwrap();
        let tensors = weights.assign(&model.steps()).unwrap();
        let mut compared = 0;
        for step in model.steps() {
            for spec in step.params {
                let name = format!("{}/{}", step.name, spec.name);
                let expected = match spec.role {
                    Role::Frozen => spec.init.values(0, &name, &spec.shape),
                    _ => values(&name, &spec.shape),
                };
                assert_eq!(tensors.get(&name).unwrap().data(), expected, "{name}");
                compared += 1;
            }
        }
        assert_eq!(compared, 21);
    }
}

/// A normalization adapted to data, a model of two inputs, functions, and layers that only matter in training.
#[test]
fn what_keras_measured_and_computes_by_functions_is_taken_over() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    let all: Value = serde_json::from_slice(&fs::read(golden.join("logits.json")).unwrap()).unwrap();
    let rows = all["adapted"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap().clone());
    let expected = Value::from_iter(rows);
    // As `pictures` of the script.
    let images: Vec<f32> = (0..3 * 192).map(|k| ((k * 37 + k / 7) % 256) as f32 / 255.0).collect();
    let file = golden.join("adapted.keras");
    let weights = KerasWeights::read(&file).unwrap();
    let network = weights.network().unwrap();
    assert!(network.architecture.normalization().is_some() && read_network(&file).unwrap() == *network);
    let notes = network.notes.join("\n");
    for (class, remedy) in [("RandomFlip", "give options of"), ("GaussianNoise", "it only matters")] {
        assert!(notes.contains(&format!("{class} of ")) && notes.contains(remedy), "{notes}");
    }
    let model = network.architecture.build(&network.name, [8, 8, 3], 3).unwrap();
    let tensors = weights.assign(&model.steps()).unwrap();
    let got = logits(&model, &tensors, &images, &towers_tensor_cpu::device(1));
    assert_eq!(compare("adapted", &got, &expected, 1e-5), None);
}

/// Keras 2 writes initializers and inputs in other words.
#[test]
fn models_of_keras_2_are_built() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    let weights = KerasWeights::read(&golden.join("tiny.keras2.h5")).unwrap();
    let network = weights.network().unwrap();
    let model = network.architecture.build(&network.name, [8, 8, 3], 3).unwrap();
    assert_eq!(weights.assign(&model.steps()).unwrap().len(), 26);
}

/// A normalization may lack its gamma or its beta.
#[test]
fn weights_alone_are_those_of_the_model() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    let described = KerasWeights::read(&golden.join("parts.keras")).unwrap();
    let network = described.network().unwrap();
    let steps = network.architecture.build(&network.name, [8, 8, 3], 3).unwrap().steps();
    let alone = KerasWeights::read(&golden.join("parts.weights.h5")).unwrap();
    assert_eq!(alone.assign(&steps).unwrap(), described.assign(&steps).unwrap());
}

/// Weights alone fit a network that begins with a scale and an offset, which have no weights in Keras.
#[test]
fn weights_alone_have_none_of_a_scale() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras");
    let described = KerasWeights::read(&golden.join("tiny.keras")).unwrap();
    let mut network = described.network().unwrap().clone();
    let options = json!({"scale": 2.0, "offset": -1.0}).as_object().unwrap().clone();
    network.architecture.layers[0].inputs = vec!["scaled".to_owned()];
    let (class, name) = ("Rescaling".to_owned(), "scaled".to_owned());
    let scale = LayerSpec { class, name, options, ..LayerSpec::default() };
    network.architecture.layers.insert(0, scale);
    let model = network.architecture.build(&network.name, [8, 8, 3], 3).unwrap();
    let weights = KerasWeights::read(&golden.join("tiny.weights.h5")).unwrap();
    let tensors = weights.assign(&model.steps()).unwrap();
    assert_eq!(tensors.get("scaled/bias").unwrap().data(), [-1.0; 3]);
    assert_eq!(tensors.len(), 28);
}

#[test]
fn what_cannot_be_read_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.json");
    let read = |config: Value| {
        fs::write(&file, config.to_string()).unwrap();
        read_network(&file).map_err(|error| error.to_string())
    };
    let layer = |class: &str, options: Value| json!({"class_name": class, "config": options});
    let sequential = |layers: &[Value]| {
        let input = layer("InputLayer", json!({"name": "i", "batch_shape": [null, 8, 8, 3]}));
        let layers = [&[input][..], layers].concat();
        json!({"class_name": "Sequential", "config": {"name": "s", "layers": layers}})
    };
    let conv = |key: &str, value: Value| {
        let mut options = json!({"name": "c", "filters": 3, "kernel_size": [3, 3]});
        options[key] = value;
        sequential(&[layer("Conv2D", options)])
    };
    for (config, says) in [
        (
            sequential(&[layer("LSTM", json!({"name": "a"}))]),
            "its layer `a` is a LSTM, which is not supported; supported are",
        ),
        (
            sequential(&[layer("Lambda", json!({"name": "a"}))]),
            "its layer `a` is a Lambda, which is not supported",
        ),
        (
            conv("data_format", json!("channels_first")),
            "its layer `c` has data_format=\"channels_first\", and towers",
        ),
        (
            json!({"class_name": "Sequential", "config": {"layers": [
                layer("InputLayer", json!({"name": "j", "batch_shape": [null, 8, 8, 2]}))]}}),
            "its input `j` has the shape [null,8,8,2], but must have rows, columns and 1 or 3 channels",
        ),
        (
            json!({"class_name": "MyModel", "config": {}}),
            "it is a model of the class `MyModel`, but only Sequential",
        ),
        (
            json!({"class_name": "Functional", "config": {"layers": [], "input_layers": [["a", 0, 0], ["b", 0, 0]]}}),
            "it has 2 inputs, but a network has one",
        ),
        (
            sequential(&[layer("Normalization", json!({"name": "n", "axis": [-1], "mean": null}))]),
            "it has no weights of its layer `n`",
        ),
        (
            sequential(&[layer(
                "Normalization",
                json!({"name": "n", "axis": [1], "mean": 1, "variance": 1}),
            )]),
            "its layer `n` must normalize each channel by one mean and one variance",
        ),
        (sequential(&[]), "its output is none of its layers"),
        (sequential(&vec![layer("ReLU", json!({"name": "r"})); 5000]), "it has more than 4000 layers"),
    ] {
        let told = read(config).err().unwrap_or_default();
        assert!(told.contains(says), "{told}");
    }
    let tensor = |name: &str, call: u32| json!({"config": {"keras_history": [name, call, 0]}});
    let called = |class: &str, options: Value, calls: &[Value]| {
        let calls: Vec<Value> = calls.iter().map(|x| json!({"args": [x], "kwargs": {}})).collect();
        json!({"class_name": class, "config": options, "inbound_nodes": calls})
    };
    let functional = |layers: &[Value]| {
        let input = called("InputLayer", json!({"name": "i", "batch_shape": [null, 8, 8, 3]}), &[]);
        let layers = [&[input][..], layers].concat();
        json!({"class_name": "Functional", "config":
            {"name": "m", "layers": layers, "input_layers": ["i", 0, 0], "output_layers": ["f", 0, 0]}})
    };
    let flat = called("Flatten", json!({"name": "f"}), &[tensor("a", 1)]);
    let twice = |class: &str, options: Value| {
        functional(&[called(class, options, &[tensor("i", 0), tensor("a", 0)]), flat.clone()])
    };
    let shared = read(twice("ReLU", json!({"name": "a"}))).unwrap().architecture;
    let names: Vec<&str> = shared.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["a", "a_call1", "f"]);
    // Keras lists a layer once, at its first call, and the layers that its second call reads come later.
    let again = called("ReLU", json!({"name": "a"}), &[tensor("i", 0), tensor("c", 0)]);
    let conv_of =
        |input| called("Conv2D", json!({"name": "c", "filters": 3, "kernel_size": 1}), &[tensor(input, 0)]);
    let shared = read(functional(&[again.clone(), conv_of("a"), flat.clone()])).unwrap().architecture;
    let inputs: Vec<_> =
        shared.layers.iter().map(|layer| (layer.name.as_str(), layer.inputs[0].as_str())).collect();
    assert_eq!(inputs, [("a", "input"), ("c", "a"), ("a_call1", "c"), ("f", "a_call1")]);
    let told = read(functional(&[again, conv_of("b"), flat.clone()])).unwrap_err();
    assert!(told.ends_with("its layer `a` reads a layer that is not there"), "{told}");
    let told = read(twice("Conv2D", json!({"name": "a", "filters": 3, "kernel_size": 1}))).unwrap_err();
    assert!(told.ends_with("its layer `a` is used 2 times, but its weights can only be used once"), "{told}");
    let notes = |key: &str, value: Value| read(conv(key, value)).unwrap().notes;
    assert_eq!(
        notes("kernel_regularizer", json!({"class_name": "L2", "config": {"l2": 0.1}})),
        [
            "kernel_regularizer of c is not taken over: give the training a parameter group, 'NAME/kernel:l2=0.2', or '*/kernel:l2=0.2' for all layers"
        ]
    );
    assert_eq!(
        notes("trainable", json!(false)),
        ["trainable of c is not taken over: freeze the layer in the training instead"]
    );
    assert!(notes("trainable", json!(true)).is_empty());
    let of = |key: &str| {
        format!("{key} of c is not taken over: the default takes its place in a training with new weights")
    };
    assert_eq!(notes("bias_initializer", json!({"class_name": "Ones"})), [of("bias_initializer")]);
    assert_eq!(notes("kernel_initializer", json!("orthogonal")), [of("kernel_initializer")]);
    assert!(notes("kernel_initializer", json!("he_normal")).is_empty());
    // The name is that of --freeze.
    let inside = read(sequential(&[conv("trainable", json!(false))])).unwrap().notes;
    assert_eq!(inside, ["trainable of s_c is not taken over: freeze the layer in the training instead"]);
}
