//! Makes a model file from the weights of another program, classifies pictures with it, and exports it to PyTorch.

use serde_json::json;
use towers_checkpoint::Tensors;
use towers_models::Architecture;
use towers_trained::{Classifier, Description, Input, Trained, export};

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The mean of a picture, and a layer that tells bright ones from dark ones. Pixels are divided by 255.
    let layers: Architecture =
        serde_json::from_value(json!([{"class": "GlobalAveragePooling2D"}, {"class": "Dense"}]))?;
    let mut weights = Tensors::new();
    weights.insert("dense/kernel", [3, 2], [-1.0, 1.0].repeat(3))?;
    weights.insert("dense/bias", [2], vec![1.5, -1.5])?;
    let classes = ["dark".to_owned(), "bright".to_owned()];
    let about = Description::new("brightness", [8, 8, 3], &classes).layers(&layers.layers);
    let made = Trained::new("memory", &about.input(&Input::DivideBy255), weights);

    let folder = tempfile::tempdir()?;
    export(&made, &folder.path().join("model.safetensors"))?;
    // The file has all that inference needs.
    let trained = Trained::read(folder.path())?;
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 2)?;
    let pictures = [[0; 8 * 8 * 3], [255; 8 * 8 * 3]].concat();
    let best: Vec<_> =
        classifier.classify(&pictures)?.iter().map(|prediction| prediction.ranked()[0]).collect();
    for (label, probability) in &best {
        println!("{}: {probability:.3}", classifier.classes[*label]);
    }
    assert!(best[0].0 == 0 && best[1].0 == 1 && best.iter().all(|(_, probability)| *probability > 0.9));

    // As a module of PyTorch with its state dict, for programs in Python.
    let files = export(&trained, &folder.path().join("brightness.py"))?;
    assert!(files.len() == 2 && std::fs::read_to_string(&files[0])?.contains("Linear"));
    Ok(())
}
