//! A custom network from its layers to a prediction: trained with validation and a learning-rate schedule,
//! saved, opened again, exported. `cargo run --release -p towers-train --example custom_network` takes a folder of
//! class folders as an optional argument.

use std::path::{Path, PathBuf};
use towers_callbacks::{Checkpoints, Curves, History, Progress};
use towers_config::recipe;
use towers_layers::{BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Graph, MaxPooling2D};
use towers_models::Model;
use towers_pictures::Pictures;
use towers_program::Activation::Relu;
use towers_train::cifar;
use towers_train::{Observer, Training};
use towers_trained::{Classifier, Trained, evaluate, export};

/// The architecture, for images of `[height, width, channels]`.
fn mine(image: [usize; 3], classes: usize) -> towers_layers::Result<Model> {
    let mut graph = Graph::new("mine", image);
    let mut x = graph.input();
    for filters in [16, 32, 64] {
        x = graph.add(Conv2D::new(filters, 3).same().use_bias(false), x)?;
        x = graph.add(BatchNormalization::new().momentum(0.9).activation(Relu), x)?;
        x = graph.add(MaxPooling2D::new(2), x)?;
    }
    x = graph.add(GlobalAveragePooling2D, x)?;
    let logits = graph.add(Dense::new(classes), x)?;
    Ok(Model::new(graph, logits))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = match std::env::args().nth(1) {
        Some(folder) => Pictures::class_folders(folder).image_size(64, 64).read()?,
        None => cifar::synthetic(1, 2_000, 400),
    };
    let model = mine(data.train.shape(), data.classes.len())?;
    println!("{}", model.summary());

    // All options of a run; the others are those of the recipe.
    let mut config = recipe("quick")?;
    (config.training.model, config.training.epochs, config.training.batch_size) = ("mine".to_owned(), 3, 50);
    config.training.optimizer = "adam".parse()?;
    (config.training.lr, config.training.schedule) = (0.003, "cosine:alpha=0.01+warmup:epochs=1".parse()?);
    (config.training.augmentation.horizontal_flip, config.training.augmentation.width_shift_range) =
        (true, "0.1".parse()?);
    config.training.augmentation.validation_split = 0.1;

    let run = PathBuf::from("runs/mine");
    let mut observers: Vec<Box<dyn Observer>> = vec![
        Box::new(Progress::new(true)),
        Box::new(History::new(&run)),
        Box::new(Curves::new(&run, "a network of my own")),
        Box::new(Checkpoints::new(&run, &config.outputs.checkpoints)?),
    ];
    Training::new(&config, data.clone()).model(model).observers(&mut observers).run()?;

    // In another program: the file has the parameters, the classes and the preprocessing; the code has the
    // layers.
    use_it(&run, &data)
}

fn use_it(run: &Path, data: &towers_dataset::Dataset) -> Result<(), Box<dyn std::error::Error>> {
    let trained = Trained::read(run)?;
    let model = mine(trained.image(), trained.classes.len())?;
    let trained = trained.with_model(model)?;
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(2), 50)?;
    let test = evaluate(&mut classifier, data, |_, _| ())?;
    println!("loss {:.3}, accuracy {:.3} on {} test images", test.loss, test.acc, test.samples);

    // For a picture file, `towers_pictures::picture(file, [height, width, channels])` reads these bytes.
    let picture: Vec<u8> = data.test.take(1).images.iter().copied().collect();
    let (label, probability) = classifier.classify(&picture)?[0].ranked()[0];
    println!("the first test image shows a {} ({:.0}%)", trained.classes[label], 100.0 * probability);
    for file in export(&trained, &run.join("mine.onnx"))? {
        println!("wrote {}", file.display());
    }
    Ok(())
}
