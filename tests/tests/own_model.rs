//! Runs of custom networks.

use towers_callbacks::Checkpoints;
use towers_config::recipe;
use towers_config::{Config, DeviceKind};
use towers_layers::{BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Graph, Value};
use towers_models::Model;
use towers_program::Activation;
use towers_train::{Error, Observer, Outcome, Training};
use towers_trained::evaluate;
use towers_trained::{Classifier, Preprocessing, Trained};

fn config() -> Config {
    let mut config = recipe("quick").unwrap();
    (config.training.epochs, config.training.batch_size) = (1, 20);
    (config.placement.devices.device, config.placement.devices.replicas, config.placement.devices.threads) =
        (DeviceKind::Cpu, 2, 2);
    config
}

fn run(model: Model, config: &Config) -> Result<Outcome, Error> {
    Training::new(config, towers_cifar::synthetic(1, 60, 20)).model(model).run()
}

/// The losses and accuracies, without the times.
fn figures(outcome: &Outcome) -> [u64; 4] {
    let epoch = &outcome.state.history[0];
    [epoch.metrics["loss"], epoch.metrics["acc"], epoch.metrics["val_loss"], epoch.metrics["val_acc"]]
        .map(f64::to_bits)
}

#[test]
fn a_network_of_ones_own_trains_as_a_named_one() {
    let own = config().with(|config| config.training.model = "mine".into());
    let mine = run(towers_models::small_cnn(10).unwrap(), &own).unwrap();
    let data = towers_cifar::synthetic(1, 60, 20);
    let named = Training::new(&config(), data).run().unwrap();
    assert_eq!(mine.state.step, 2);
    assert_eq!(figures(&mine), figures(&named));
}

#[test]
fn a_network_for_other_data_is_refused() {
    let error = run(towers_models::small_cnn(7).unwrap(), &config()).expect_err("7 classes for 10");
    let told = error.to_string();
    assert!(told.contains("32x32x3 images into 7 classes") && told.contains("into 10 classes"), "{told}");
}

/// A network without a name.
fn mine(image: [usize; 3], filters: usize, classes: usize) -> Model {
    of_layers(image, classes, |graph, x| {
        let conv = Conv2D::new(filters, 3).same().use_bias(false);
        let x = graph.add_named("look", conv, x)?;
        graph.add(BatchNormalization::new().activation(Activation::Relu), x)
    })
}

/// Some layers, a pooling and a dense layer.
fn of_layers(
    image: [usize; 3],
    classes: usize,
    layers: impl Fn(&mut Graph, Value) -> towers_layers::Result<Value>,
) -> Model {
    let mut graph = Graph::new("mine", image);
    let x = graph.input();
    let x = layers(&mut graph, x).unwrap();
    let x = graph.add(GlobalAveragePooling2D, x).unwrap();
    let logits = graph.add(Dense::new(classes), x).unwrap();
    Model::new(graph, logits)
}

/// Training images of a size that no named data set has.
fn cropped() -> towers_cifar::Dataset {
    let crop = |split: &towers_cifar::Split| {
        let mut cropped = split.clone();
        cropped.images = split.images.slice(ndarray::s![.., 4..28, 2..30, ..]).to_owned();
        cropped
    };
    let mut data = towers_cifar::synthetic(1, 60, 20);
    (data.train, data.test) = (crop(&data.train), crop(&data.test));
    data
}

/// Trains `mine` into a folder.
fn trained_in(run: &std::path::Path) -> (Outcome, towers_cifar::Dataset) {
    let config = config().with(|config| {
        config.training.model = "mine".into();
        config.training.preprocessing = Preprocessing::SubtractPixelMean;
    });
    let data = cropped();
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(Checkpoints::new(run, &config.outputs.checkpoints).unwrap())];
    let model = mine(data.train.shape(), 8, 10);
    let outcome = Training::new(&config, data.clone()).model(model).observers(&mut observers).run();
    (outcome.unwrap(), data)
}

/// Its network would be sure of the only class whatever it sees.
#[test]
fn data_of_a_single_class_are_refused() {
    let mut data = cropped();
    data.classes.truncate(1);
    for split in [&mut data.train, &mut data.test] {
        split.labels.fill(0);
    }
    let model = mine(data.train.shape(), 8, 1);
    let told = Training::new(&config(), data).model(model).run();
    let told = told.map(|_| ()).unwrap_err();
    let says =
        "the number of classes is 1, but must be at least 2: a softmax of one score is 1 for any picture";
    assert_eq!(told.to_string(), says);
}

#[test]
fn a_network_of_ones_own_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, data) = trained_in(folder.path());
    let trained = Trained::read(folder.path()).unwrap();
    assert_eq!((trained.image(), trained.network.as_str()), ([24, 28, 3], "mine"));
    let told = trained.model().expect_err("nobody knows its layers").to_string();
    assert!(told.contains("one of your own is opened from Rust, by `Trained::with_model`"), "{told}");

    let trained = trained.with_model(mine([24, 28, 3], 8, 10)).unwrap();
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 7).unwrap();
    let evaluation = evaluate(&mut classifier, &data, |_, _| {}).unwrap();
    let epoch = &outcome.state.history[0];
    assert!(
        (evaluation.loss - epoch.metrics["val_loss"]).abs() < 1e-4,
        "{} {}",
        evaluation.loss,
        epoch.metrics["val_loss"]
    );
    assert_eq!(evaluation.acc, epoch.metrics["val_acc"]);
    let picture: Vec<u8> = data.test.take(1).images.iter().copied().collect();
    assert_eq!(classifier.classify(&picture).unwrap()[0].probabilities.len(), 10);

    let at = |file: &str| folder.path().join(file);
    for file in ["mine.onnx", "mine.py", "again.safetensors"] {
        towers_trained::export(&trained, &at(file)).unwrap();
    }
    assert!(std::fs::read_to_string(at("mine.py")).unwrap().contains("self.look = nn.Conv2d(3, 8"));
    let again = Trained::read(&at("again.safetensors")).unwrap();
    let again = again.with_model(mine([24, 28, 3], 8, 10)).unwrap();
    let mut second = Classifier::new(&again, &towers_tensor_cpu::device(1), 7).unwrap();
    let logits = |classifier: &mut Classifier| classifier.logits(&picture).unwrap();
    assert_eq!(logits(&mut classifier), logits(&mut second));

    // A checkpoint, which includes the optimizer state, opens as the same network.
    let no_data = |_| unreachable!("a checkpoint says all");
    let checkpoint = towers_config::open_model(
        &at(towers_callbacks::CHECKPOINTS),
        &towers_trained::Assumed::default(),
        no_data,
    );
    let checkpoint = checkpoint.unwrap().with_model(mine([24, 28, 3], 8, 10)).unwrap();
    let mut third = Classifier::new(&checkpoint, &towers_tensor_cpu::device(1), 7).unwrap();
    assert_eq!(logits(&mut classifier), logits(&mut third));
}

/// Options refer to layers of the trained network, not of the configured one.
#[test]
fn parameters_and_stages_are_those_of_the_own_network() {
    let mut config = config();
    config.training.param_groups = vec!["look/kernel:lr-multiplier=0.5".parse().unwrap()];
    let figures_of = |config: &Config| figures(&run(mine([32, 32, 3], 8, 10), config).unwrap());
    let named = figures_of(&config);
    assert_eq!(figures_of(&config.with(|config| config.training.model = "mine".into())), named);
    (config.placement.devices.pipeline_stages, config.placement.devices.replicas) = (2, 1);
    config.placement.devices.split_at = vec!["batch_normalization".into()];
    figures_of(&config);
    config.placement.devices.split_at = vec!["batch_normalization_1".into()];
    let told = run(mine([32, 32, 3], 8, 10), &config).expect_err("another network's layer").to_string();
    assert!(told.contains("behind `batch_normalization_1`: there is no such layer"), "{told}");
}

#[test]
fn images_without_labels_and_batches_of_none_are_refused() {
    let mut data = towers_cifar::synthetic(1, 60, 20);
    data.train.labels = data.train.labels.slice(ndarray::s![..30]).to_owned();
    let model = towers_models::small_cnn(10).unwrap();
    let refused = Training::new(&config(), data).model(model).run();
    let told = refused.expect_err("30 labels").to_string();
    assert!(told.contains("the number of labels is 30, but must be 60: one for each image"), "{told}");

    let folder = tempfile::tempdir().unwrap();
    let (_, mut data) = trained_in(folder.path());
    let trained = Trained::read(folder.path()).unwrap().with_model(mine([24, 28, 3], 8, 10));
    let trained = trained.unwrap();
    let told = Classifier::new(&trained, &towers_tensor_cpu::device(1), 0)
        .map(|_| ())
        .expect_err("no batch")
        .to_string();
    assert!(told.contains("the size of a batch is 0, but must be at least 1"), "{told}");
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 7).unwrap();
    data.test.labels = data.test.labels.slice(ndarray::s![..5]).to_owned();
    let told = evaluate(&mut classifier, &data, |_, _| {}).expect_err("5 labels").to_string();
    assert!(told.contains("the number of labels is 5, but must be 20"), "{told}");
}

#[test]
fn another_network_than_the_files_is_told() {
    let folder = tempfile::tempdir().unwrap();
    trained_in(folder.path());
    let refused = |model: Model| {
        let trained = Trained::read(folder.path()).unwrap();
        trained.with_model(model).expect_err("another network").to_string()
    };
    let conv = || Conv2D::new(8, 3).same().use_bias(false);
    let plain = of_layers([24, 28, 3], 10, |graph, x| graph.add_named("look", conv(), x));
    let less = of_layers([24, 28, 3], 10, |_, x| Ok(x));
    for (model, says) in [
        (
            mine([32, 32, 3], 8, 10),
            "the file's is for 24x28x3 images into 10 classes, the given one for 32x32x3 images",
        ),
        (mine([24, 28, 1], 8, 10), "the given one for 24x28x1 images into 10 classes"),
        (mine([24, 28, 3], 8, 9), "the given one for 24x28x3 images into 9 classes"),
        (
            mine([24, 28, 3], 9, 10),
            "its `look/kernel` has the shape [3, 3, 3, 8], but the given one's has [3, 3, 3, 9]",
        ),
        (
            towers_models::by_name_for("small_cnn", [24, 28, 3], 10).unwrap().unwrap(),
            "the given one has `conv2d/kernel`, which the file has not",
        ),
        (plain, "the file has `batch_normalization/"),
        (less, "its `dense/kernel` has the shape [8, 10], but the given one's has [3, 10]"),
    ] {
        let told = refused(model);
        assert!(told.contains(": this is another network than `mine`: ") && told.contains(says), "{told}");
    }
}
