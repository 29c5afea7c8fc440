//! Networks of PyTorch in ONNX, as its exporters write them: tests/golden/torch_models.py made them.

use crate::keras_models::{self, compare, numbers};
use serde_json::Value;
use std::fs;
use std::path::Path;
use towers_interchange::onnx::OnnxNetwork;
use towers_program::Device;

const BATCH: usize = 2;

/// The logits of the images that the script made.
fn logits(file: &Path, [h, w]: [usize; 2], device: &Device) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let read = OnnxNetwork::read(file)?;
    let network = read.network();
    assert!(network.image.is_none_or(|image| image == [h, w]));
    let classes = network.classes.unwrap_or(1);
    let model = network.architecture.build(&network.name, [h, w, 3], classes)?;
    let tensors = read.assign(&model.steps())?;
    let images: Vec<f32> = numbers("images", BATCH * h * w * 3).into_iter().map(|x| 2.0 * x).collect();
    Ok(keras_models::logits(&model, &tensors, &images, device))
}

/// A softmax of logits is the same if a number is added to all of them, and PyTorch's log_softmax adds one.
fn centred(logits: &[f64], classes: usize) -> Vec<f64> {
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    logits.chunks(classes).flat_map(|row| row.iter().map(|x| x - mean(row)).collect::<Vec<_>>()).collect()
}

/// Batch normalizations that are in convolutions would be missed in a training.
#[test]
fn folded_normalizations_are_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch_models");
    let notes = |name: &str| OnnxNetwork::read(&folder.join(name)).unwrap().network().notes.join("\n");
    let says = "PyTorch's exporter has folded batch normalization into 2 of its convolutions";
    for name in ["residual_export.onnx", "residual_sizes.onnx"] {
        let told = notes(name);
        assert!(told.starts_with(says) && told.contains("TrainingMode.PRESERVE"), "{name}: {told}");
    }
    for name in ["residual_training.onnx", "normalized_export.onnx", "lenet_script.onnx"] {
        assert_eq!(notes(name), "", "{name}");
    }
}

/// The committed graphs, or those of a folder that the script made elsewhere.
#[test]
fn exported_networks_compute_what_pytorch_computes() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch_models");
    let folder = std::env::var_os("TOWERS_TORCH_MODELS").map_or(committed, Into::into);
    let golden: Vec<Value> =
        serde_json::from_slice(&fs::read(folder.with_extension("json")).unwrap()).unwrap();
    let mut differ = Vec::new();
    for (device, tolerance) in [(towers_tensor_cpu::reference(), 1e-5), (towers_tensor_cpu::device(1), 1e-4)]
    {
        for entry in &golden {
            let name = entry["file"].as_str().unwrap();
            let image = [0, 1].map(|k| entry["image"][k].as_u64().unwrap() as usize);
            let got = match logits(&folder.join(name), image, &device) {
                Ok(got) => got.into_iter().map(f64::from).collect::<Vec<f64>>(),
                Err(error) => {
                    let told = error.to_string();
                    let says = match name {
                        "branches_script.onnx" => {
                            "its `Concat` reads flattened images in the order channel, row, column; only a Gemm or MatMul can"
                        }
                        _ => "no error",
                    };
                    differ.extend(Some(told).filter(|told| !told.contains(says)));
                    continue;
                }
            };
            let expected: Vec<f64> =
                entry["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let classes = expected.len() / BATCH;
            let (got, expected) = match classes {
                // The graph's sigmoid is the loss's here.
                1 => (got.into_iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(), expected),
                _ => (centred(&got, classes), centred(&expected, classes)),
            };
            let (got, expected): (Vec<f32>, _) =
                (got.into_iter().map(|x| x as f32).collect(), expected.into());
            differ.extend(compare(&format!("{name} on {}", device.kind()), &got, &expected, tolerance));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(golden.len() >= 8);
}
