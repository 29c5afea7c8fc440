//! Weights in Keras' file formats, written by Keras: tests/golden/keras_weights.py.

use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use towers_config::Error;
use towers_config::open_model;
use towers_interchange::keras::KerasWeights;
use towers_layers::{
    BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Flatten, Graph, MaxPooling2D, Mode, Padding,
    Result, Value,
};
use towers_models::Model;
use towers_program::Activation::Relu;
use towers_tests::assert_close;
use towers_trained::{Assumed, Classifier, Trained};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/keras").join(name)
}

fn expected(network: &str) -> Vec<f32> {
    let all: Json = serde_json::from_str(&fs::read_to_string(golden("logits.json")).unwrap()).unwrap();
    let rows = all[network].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    rows.map(|value| value.as_f64().unwrap() as f32).collect()
}

/// As `pictures` of the script.
fn pictures(count: usize, size: usize) -> Vec<u8> {
    (0..count * size * size * 3).map(|k| ((k * 37 + k / 7) % 256) as u8).collect()
}

fn conv_module(g: &mut Graph, x: Value, filters: usize, kernel: usize, stride: usize) -> Result<Value> {
    let padding = if stride == 1 { Padding::Same } else { Padding::Valid };
    let x = g.add(Conv2D::new(filters, kernel).strides(stride).padding(padding), x)?;
    g.add(BatchNormalization::new().activation(Relu), x)
}

/// `tiny` of the script, optionally with other filters in a branch, or another stride at the end.
fn tiny(ones: usize, stride: usize) -> Result<Model> {
    let mut graph = Graph::new("tiny", [8, 8, 3]);
    let g = &mut graph;
    let x = conv_module(g, g.input(), 4, 3, 1)?;
    let a = conv_module(g, x, ones, 1, 1)?;
    let b = conv_module(g, x, 5, 3, 1)?;
    let x = g.add(Concatenate, [a, b])?;
    let a = conv_module(g, x, 6, 3, stride)?;
    let b = g.add(
        MaxPooling2D::new(3).strides(stride).padding(if stride == 1 {
            Padding::Same
        } else {
            Padding::Valid
        }),
        x,
    )?;
    let x = g.add(Concatenate, [a, b])?;
    let x = g.add(Flatten, x)?;
    let x = g.add(Dropout::new(0.5), x)?;
    let x = g.add(Dense::new(3), x)?;
    Ok(Model::new(graph, x))
}

#[test]
fn every_layout_gives_keras_logits() {
    for name in ["tiny.weights.h5", "tiny.keras", "tiny.h5", "tiny.keras2.h5", "parallel.keras2.h5"] {
        let weights = KerasWeights::read(&golden(name)).unwrap();
        assert_eq!(weights.classes(), Some(3), "{name}");
        // Files of `model.save` describe their network.
        let described = weights.network().map(|own| own.architecture.build(&own.name, [8, 8, 3], 3));
        assert_eq!(described.is_some(), ["tiny.keras", "tiny.h5", "tiny.keras2.h5"].contains(&name));
        let model = described.unwrap_or_else(|| tiny(4, 2)).unwrap();
        let tensors = weights.assign(&model.steps()).unwrap_or_else(|error| panic!("{error}"));
        let device = towers_tensor_cpu::device(1);
        let mut network = model.build(&device, 3, Mode::Inference).unwrap();
        for slot in network.arena().slots().to_vec() {
            let values = tensors.get(&slot.name).unwrap().data();
            network.arena_mut().load(&device, &slot, values).unwrap();
        }
        let images: Vec<f32> = pictures(3, 8).into_iter().map(|x| f32::from(x) / 255.0).collect();
        network.set_input(&images, &[0; 3]).unwrap();
        network.predict().unwrap();
        let view = network.logits();
        let logits = view.data.to_vec(&device, view.layout.offset, 9).unwrap();
        assert_close(name, &logits, &expected("tiny"), 1e-5);
    }
}

#[test]
fn what_does_not_fit_is_one_sentence() {
    let refusal = |file: &str, model: Result<Model>| {
        let weights = KerasWeights::read(&golden(file)).unwrap();
        weights.assign(&model.unwrap().steps()).unwrap_err().to_string()
    };
    for (file, model, says) in [
        (
            "tiny.weights.h5",
            tiny(7, 2),
            "no layer of it is left for the network's `conv2d_1` and `batch_normalization_1` with weights of \
             (1, 1, 4, 7), (7), (7), (7), (7), (7)",
        ),
        ("tiny.weights.h5", towers_models::small_cnn(3), "it has 4 convolutions, but the network has 3"),
        (
            "tiny.weights.h5",
            towers_models::keras_cnn(3),
            "it has 4 batch normalizations, but the network has 0",
        ),
        ("named.weights.h5", towers_models::small_cnn(3), "it has 2 convolutions, but the network has 3"),
    ] {
        let told = refusal(file, model);
        assert!(told.contains(says), "{told}");
    }
    let told = refusal("small_cnn.keras", towers_models::small_cnn(7));
    assert!(told.contains("is left for the network's `dense` with weights of (1024, 7)"), "{told}");
    // Custom names have no order.
    let mut graph = Graph::new("named", [8, 8, 3]);
    let x = graph.add(Conv2D::new(3, 3), graph.input()).unwrap();
    let x = graph.add(Conv2D::new(3, 3), x).unwrap();
    let told = refusal("named.weights.h5", Ok(Model::new(graph, x)));
    assert!(told.contains("have the same shapes, and nothing says which comes first"), "{told}");
}

#[test]
fn a_model_of_keras_classifies() {
    let nothing = |_| -> towers_config::Result<_> { panic!("no data are needed") };
    let path = golden("small_cnn.keras");
    let trained = open_model(&path, &Assumed::default(), nothing).unwrap();
    assert_eq!((trained.network.as_str(), trained.classes[3].as_str()), ("functional_1", "cat"));
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 2).unwrap();
    assert_close("small_cnn", &classifier.logits(&pictures(3, 32)).unwrap(), &expected("small_cnn"), 1e-5);
    let wrong = |assumed: Assumed| open_model(&path, &assumed, nothing).unwrap_err();
    let error = wrong(Assumed { network: Some("small_cnn".into()), ..Assumed::default() });
    assert!(error.to_string().ends_with("small_cnn.keras: it has the layers of its network"), "{error}");
    let weights_alone = |network: &str| {
        let assumed = Assumed { network: Some(network.into()), ..Assumed::default() };
        open_model(&golden("tiny.weights.h5"), &assumed, nothing).unwrap_err()
    };
    let error = weights_alone("smal_cnn");
    assert!(matches!(&error, Error::Option(_)) && error.to_string().contains("did you mean `small_cnn`"));
    let error = weights_alone("resnet18");
    assert!(error.to_string().contains("it has 4 convolutions, but the network has 20"), "{error}");
    let error = wrong(Assumed { dataset: Some("cifar100".into()), ..Assumed::default() });
    assert!(
        error.to_string().contains("cifar100 with 100 classes, but must be the data with the 10"),
        "{error}"
    );
    let error = open_model(&golden("tiny.weights.h5"), &Assumed::default(), nothing).unwrap_err();
    assert!(error.to_string().contains("fit none of airbench94"), "{error}");
    let numbered = open_model(&golden("tiny.keras"), &Assumed::default(), nothing).unwrap();
    assert_eq!(numbered.classes, ["0", "1", "2"]);
}

/// No memory is allocated for a file's declared size before it matches the network.
#[test]
fn values_are_read_where_shapes_fit() {
    let bytes = fs::read(golden("tiny.weights.h5")).unwrap();
    let words = |shape: [u64; 4]| shape.map(u64::to_le_bytes).concat();
    let small = words([3, 3, 9, 6]);
    let place = bytes.windows(small.len()).position(|part| part == small).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.h5");
    let with = |shape: [u64; 4]| {
        let mut bytes = bytes.clone();
        bytes[place..place + small.len()].copy_from_slice(&words(shape));
        fs::write(&path, bytes).unwrap();
        let weights = KerasWeights::read(&path)?;
        weights.assign(&tiny(4, 2).unwrap().steps())
    };
    assert!(with([3, 3, 9, 6]).is_ok());
    // Values that are not in the file.
    let told = with([3, 3, 9, 1 << 20]).unwrap_err().to_string();
    assert!(
        told.contains("no layer of it is left for the network's") && told.contains("(3, 3, 9, 6)"),
        "{told}"
    );
    let told = with([3, 3, 9, 1 << 24]).unwrap_err().to_string();
    assert!(told.ends_with("would make more than 2048 MiB of weights"), "{told}");
}

/// Any file contents result in weights or an error message.
#[test]
fn hostile_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.h5");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        KerasWeights::read(&path).map(|weights| weights.assign(&tiny(4, 2).unwrap().steps()))
    };
    let told = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(told(b"").contains("neither HDF5 nor a .keras archive"));
    assert!(told(b"PK\x03\x04").contains("the archive is damaged"));
    assert!(told(b"\x89HDF\r\n\x1a\n").contains("the HDF5 file is damaged"));
    assert!(KerasWeights::read(folder.path()).unwrap_err().to_string().contains("no regular file"));
    let mut refused = 0;
    for name in ["parallel.keras2.h5", "tiny.weights.h5", "tiny.keras"] {
        let whole = fs::read(golden(name)).unwrap();
        assert!(read(&whole).is_ok());
        for part in 0..40 {
            refused += usize::from(read(&whole[..whole.len() * part / 40]).is_err());
        }
        let mut word = 1_u64;
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                // Knuth's generator; any sequence would do. Most of the structure is at the beginning.
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let end = if word & 1 == 0 { bytes.len() } else { bytes.len().min(6000) };
                let place = (word >> 33) as usize % end;
                bytes[place] = (word >> 8) as u8;
            }
            refused += usize::from(!matches!(read(&bytes), Ok(Ok(_))));
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn what_is_not_there_is_told() {
    let trained = |path: &Path| -> towers_config::Result<Trained> {
        open_model(path, &Assumed::default(), |_| unreachable!("no data"))
    };
    assert!(trained(Path::new("nothing.h5")).unwrap_err().to_string().contains("there is no model here"));
}
