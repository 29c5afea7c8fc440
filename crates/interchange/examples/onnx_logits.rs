//! The class scores of an ONNX graph or a model of Keras on the CPU, for docs/benchmarks/import_onnx.py and import_keras.py.
//!
//! usage: `onnx_logits FILE HEIGHT WIDTH < IMAGES > SCORES`. Images are float32 in the order (image, row, column, channel). Phases
//! and their seconds go to standard error. With a fourth argument, `train`, the programs of training are built too.

use std::error::Error;
use std::io::{Read, Write, stderr, stdin, stdout};
use std::path::Path;
use std::time::Instant;
use towers_interchange::keras::KerasWeights;
use towers_interchange::onnx::OnnxNetwork;
use towers_layers::Mode;
use towers_program::Device;
use towers_tensor_cpu::Cpu;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// A file that was read.
enum File {
    Onnx(OnnxNetwork),
    Keras(KerasWeights),
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, height, width, trains) = match &arguments[..] {
        [file, height, width] => (file, height, width, false),
        [file, height, width, train] if train == "train" => (file, height, width, true),
        _ => return Err("it needs FILE HEIGHT WIDTH [train]".into()),
    };
    let (h, w): (usize, usize) = (height.parse()?, width.parse()?);
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes)?;
    let images: Vec<f32> = bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect();
    let batch = images.len() / (h * w * 3);

    let mut start = Instant::now();
    let mut phase = |name: &str| -> std::io::Result<()> {
        writeln!(stderr(), "{name} {:.3}", start.elapsed().as_secs_f64())?;
        start = Instant::now();
        Ok(())
    };
    let path = Path::new(file);
    let read = match path.extension().is_some_and(|ending| ending == "onnx") {
        true => File::Onnx(OnnxNetwork::read(path)?),
        false => File::Keras(KerasWeights::read(path)?),
    };
    phase("read")?;
    let network = match &read {
        File::Onnx(read) => read.network(),
        File::Keras(read) => read.network().ok_or("the file has no layers")?,
    };
    let model = network.architecture.build(&network.name, [h, w, 3], network.classes.unwrap_or(1))?;
    phase("graph")?;
    let steps = model.steps();
    let tensors = match &read {
        File::Onnx(read) => read.assign(&steps)?,
        File::Keras(read) => read.assign(&steps)?,
    };
    phase("assign")?;
    // Without Winograd transforms: they cost a digit, and could hide a small mistake of the import.
    let device = Device::from(Cpu::new(2).without_winograd());
    let mut built = model.build(&device, batch, Mode::Inference)?;
    phase("program")?;
    if trains {
        drop(model.build(&device, batch, Mode::Training)?);
        phase("training_program")?;
    }
    for slot in built.arena().slots().to_vec() {
        let tensor = tensors.get(&slot.name).ok_or("a parameter is missing")?;
        built.arena_mut().load(&device, &slot, tensor.data())?;
    }
    phase("load")?;
    built.set_input(&images, &vec![0; batch])?;
    built.predict()?;
    phase("predict")?;
    let logits = built.logits();
    let scores = logits.data.to_vec(&device, logits.layout.offset, logits.layout.shape.len())?;
    let bytes: Vec<u8> = scores.iter().flat_map(|x| x.to_le_bytes()).collect();
    Ok(stdout().write_all(&bytes)?)
}
