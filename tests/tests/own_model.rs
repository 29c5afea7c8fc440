//! Runs of networks that no recipe names.

use layers::{BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Graph};
use models::Model;
use tensor::{Activation, Device};
use train::observers::Checkpoints;
use train::{Classifier, Config, DeviceKind, Error, Observer, Outcome, Preprocessing, StopFlag, Trained};
use train::{cifar, evaluate, recipe, train_model};

fn config() -> Config {
    let mut config = recipe("quick").expect("the recipe");
    (config.epochs, config.batch_size) = (1, 20);
    (config.devices.device, config.devices.replicas, config.devices.threads) = (DeviceKind::Cpu, 2, 2);
    config
}

fn run(model: Model, config: &Config) -> Result<Outcome, Error> {
    train_model(model, config, cifar::synthetic(1, 60, 20), None, &mut [], &StopFlag::default())
}

/// The losses and accuracies, not the times.
fn figures(outcome: &Outcome) -> [u64; 4] {
    let epoch = &outcome.state.history[0];
    [epoch.loss, epoch.acc, epoch.val_loss, epoch.val_acc].map(f64::to_bits)
}

#[test]
fn a_network_of_ones_own_trains_as_a_named_one() {
    let own = Config { model: "mine".into(), ..config() };
    let mine = run(models::small_cnn(10).expect("a network"), &own).expect("a run");
    let data = cifar::synthetic(1, 60, 20);
    let named = train::train(&config(), data, None, &mut [], &StopFlag::default()).expect("a run");
    assert_eq!(mine.state.step, 2);
    assert_eq!(figures(&mine), figures(&named));
}

#[test]
fn a_network_for_other_data_is_refused() {
    let error = run(models::small_cnn(7).expect("a network"), &config()).expect_err("7 classes for 10");
    let told = error.to_string();
    assert!(told.contains("32x32x3 images into 7 classes") && told.contains("into 10 classes"), "{told}");
}

/// A network that no name stands for.
fn mine(image: [usize; 3], filters: usize, classes: usize) -> Model {
    let mut graph = Graph::new("mine", image);
    let conv = Conv2D::new(filters, 3).same().use_bias(false);
    let x = graph.add_named("look", conv, graph.input()).expect("a convolution");
    let x = graph.add(BatchNormalization::new().activation(Activation::Relu), x).expect("a normalization");
    let x = graph.add(GlobalAveragePooling2D, x).expect("a pooling");
    let logits = graph.add(Dense::new(classes), x).expect("a dense layer");
    Model::new(graph, logits)
}

/// Training images of a size that no data set has.
fn cropped() -> cifar::Dataset {
    let crop = |split: &cifar::Split| {
        let images = split.images.slice(ndarray::s![.., 4..28, 2..30, ..]).to_owned();
        cifar::Split { images, ..split.clone() }
    };
    let whole = cifar::synthetic(1, 60, 20);
    cifar::Dataset { train: crop(&whole.train), test: crop(&whole.test), ..whole }
}

/// Trains `mine` into a folder.
fn trained_in(run: &std::path::Path) -> (Outcome, cifar::Dataset) {
    let config = Config { model: "mine".into(), preprocessing: Preprocessing::SubtractPixelMean, ..config() };
    let data = cropped();
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(Checkpoints::new(run, &config).expect("the folder can be made"))];
    let model = mine(data.train.shape(), 8, 10);
    let outcome = train_model(model, &config, data.clone(), None, &mut observers, &StopFlag::default());
    (outcome.expect("a run"), data)
}

#[test]
fn a_network_of_ones_own_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outcome, data) = trained_in(folder.path());
    let trained = Trained::read(folder.path()).expect("a model file");
    assert_eq!((trained.image(), trained.network.as_str()), ([24, 28, 3], "mine"));
    let told = trained.model().expect_err("nobody knows its layers").to_string();
    assert!(told.contains("one of your own is opened from Rust, by `Trained::with_model`"), "{told}");

    let trained = trained.with_model(mine([24, 28, 3], 8, 10)).expect("the same network");
    let mut classifier = Classifier::new(&trained, &Device::cpu(1), 7).expect("a classifier");
    let evaluation = evaluate(&mut classifier, &data, |_, _| {}).expect("an evaluation");
    let epoch = &outcome.state.history[0];
    assert!((evaluation.loss - epoch.val_loss).abs() < 1e-4, "{} {}", evaluation.loss, epoch.val_loss);
    assert_eq!(evaluation.acc, epoch.val_acc);
    let picture: Vec<u8> = data.test.take(1).images.iter().copied().collect();
    assert_eq!(classifier.classify(&picture).expect("a prediction")[0].probabilities.len(), 10);

    let at = |file: &str| folder.path().join(file);
    for file in ["mine.onnx", "mine.py", "again.safetensors"] {
        train::export(&trained, &at(file)).expect("a file");
    }
    assert!(std::fs::read_to_string(at("mine.py")).expect("a module").contains("self.look = nn.Conv2d(3, 8"));
    let again = Trained::read(&at("again.safetensors")).expect("a model file");
    let again = again.with_model(mine([24, 28, 3], 8, 10)).expect("the same network");
    let mut second = Classifier::new(&again, &Device::cpu(1), 7).expect("a classifier");
    let logits = |classifier: &mut Classifier| classifier.logits(&picture).expect("logits");
    assert_eq!(logits(&mut classifier), logits(&mut second));

    // A checkpoint, with the optimizer's memory in it, is the same network.
    let load = |_| Ok(data.clone());
    let checkpoint = train::open_model(&at(train::CHECKPOINTS), &train::Assumed::default(), load);
    let checkpoint =
        checkpoint.expect("a checkpoint").with_model(mine([24, 28, 3], 8, 10)).expect("the same");
    let mut third = Classifier::new(&checkpoint, &Device::cpu(1), 7).expect("a classifier");
    assert_eq!(logits(&mut classifier), logits(&mut third));
}

#[test]
fn another_network_than_the_files_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    trained_in(folder.path());
    let refused = |model: Model| {
        let trained = Trained::read(folder.path()).expect("a model file");
        trained.with_model(model).expect_err("another network").to_string()
    };
    let plain = || {
        let mut graph = Graph::new("mine", [24, 28, 3]);
        let conv = Conv2D::new(8, 3).same().use_bias(false);
        let x = graph.add_named("look", conv, graph.input()).expect("a convolution");
        let x = graph.add(GlobalAveragePooling2D, x).expect("a pooling");
        let logits = graph.add(Dense::new(10), x).expect("a dense layer");
        Model::new(graph, logits)
    };
    let longer = || {
        let mut graph = Graph::new("mine", [24, 28, 3]);
        let x = graph.add(GlobalAveragePooling2D, graph.input()).expect("a pooling");
        let logits = graph.add(Dense::new(10), x).expect("a dense layer");
        Model::new(graph, logits)
    };
    for (model, says) in [
        (
            mine([32, 32, 3], 8, 10),
            "the file's is for 24x28x3 images into 10 classes, the given one for 32x32x3 images",
        ),
        (mine([24, 28, 1], 8, 10), "the given one for 24x28x1 images into 10 classes"),
        (mine([24, 28, 3], 8, 9), "the given one for 24x28x3 images into 9 classes"),
        (mine([24, 28, 3], 9, 10), "its `look/kernel` has 216 numbers, but the given one's has 243"),
        (
            models::by_name_for("small_cnn", [24, 28, 3], 10).expect("a name").expect("a network"),
            "the given one has `conv2d/kernel`, which the file has not",
        ),
        (plain(), "the file has `batch_normalization/"),
        (longer(), "its `dense/kernel` has 80 numbers, but the given one's has 30"),
    ] {
        let told = refused(model);
        assert!(told.contains(": this is another network than `mine`: ") && told.contains(says), "{told}");
    }
}
