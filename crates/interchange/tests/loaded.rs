//! Whole networks by one call.

use std::path::PathBuf;
use towers_interchange::{Error, Loaded, Pixels, Source, keras, onnx, tensors};
use towers_layers::Mode;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/keras").join(name)
}

/// The scores of two pictures.
fn scores(loaded: &Loaded) -> Vec<f32> {
    let device = towers_tensor_cpu::device(1);
    let mut network = loaded.model.build(&device, 2, Mode::Inference).unwrap();
    loaded.put_into(&mut network).unwrap();
    assert_eq!(tensors(&network).unwrap().len(), loaded.tensors.len());
    let pixels: Vec<f32> = (0..2 * network.sample_len()).map(|k| (k * 37 % 256) as f32).collect();
    network.set_input(&pixels, &[0, 0]).unwrap();
    network.predict().unwrap();
    let logits = network.logits();
    logits.data.to_vec(&device, logits.layout.offset, logits.layout.shape.len()).unwrap()
}

#[test]
fn a_model_of_keras_becomes_an_onnx_graph() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    keras::to_onnx(golden("tiny.keras"), &file).unwrap();
    let (ours, theirs) = (keras::load(golden("tiny.keras")).unwrap(), onnx::load(&file).unwrap());
    assert_eq!(ours.model.image(), theirs.model.image());
    assert_eq!(scores(&ours), scores(&theirs));
    assert_eq!(theirs.pixels, Some(Pixels::unchanged(3)));
    let names: Vec<String> = (0..ours.model.classes()).map(|k| format!("class {k}")).collect();
    onnx::save(&file, &ours.source().classes(&names).pixels(Pixels::to_one(3))).unwrap();
    let named = onnx::load(&file).unwrap();
    assert_eq!((named.classes.as_ref(), named.pixels.as_ref()), (Some(&names), Some(&Pixels::to_one(3))));
    // The same file is written again.
    let again = folder.path().join("again.onnx");
    onnx::save(&again, &named.source()).unwrap();
    assert!(std::fs::read(again).unwrap() == std::fs::read(file).unwrap());
}

#[test]
fn what_a_file_does_not_say_is_asked_for() {
    let file = golden("tiny.weights.h5");
    let told = keras::load(&file).unwrap_err();
    assert!(matches!(&told, Error::File { reason, .. } if reason.contains("weights alone")), "{told}");
    let model = towers_models::small_cnn(2).unwrap();
    let none = towers_checkpoint::Tensors::new();
    let told = onnx::write(&Source::of(&model, &none)).unwrap_err();
    assert!(matches!(told, Error::Tensor { .. }), "{told}");
}
