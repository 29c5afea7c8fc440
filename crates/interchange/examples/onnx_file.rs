//! A network as an ONNX graph, there and back.

use towers_interchange::{Pixels, Source, onnx, tensors};
use towers_layers::Mode;

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = towers_models::small_cnn(2)?;
    let mut network = model.build(&towers_tensor_cpu::device(1), 1, Mode::Inference)?;
    network.init(1)?;
    let (tensors, classes) = (tensors(&network)?, ["cat".to_owned(), "dog".to_owned()]);
    let file = std::env::temp_dir().join(format!("towers-outside-{}.onnx", std::process::id()));
    onnx::save(&file, &Source::of(&model, &tensors).pixels(Pixels::to_one(3)).classes(&classes))?;
    let loaded = onnx::load(&file)?;
    std::fs::remove_file(file)?;
    println!("{} tells {:?} apart", loaded.model.graph().name(), loaded.classes.unwrap_or_default());
    Ok(())
}
