//! Runs that begin with given weights, and frozen layers.

use std::path::Path;
use towers_checkpoint::{Tensors, load_tensors};
use towers_config::{Config, Preprocessing, open_model};
use towers_tests::{
    Finished, assert_same, assert_same_steps, cpus, few_images, in_two_parts, quick_on_14, run_in, trained,
};
use towers_train::Resume;
use towers_trained::{Assumed, MODEL_FILE};

/// A trained network in a folder, with the preprocessing of `minigooglenet`.
fn pretrained(folder: &Path) -> Tensors {
    let mut config = quick_on_14().with(|config| config.training.epochs = 1);
    config.training.preprocessing = Preprocessing::SubtractPixelMean;
    run_in(folder, &cpus(1, 2), &config, &few_images(), None, None).unwrap();
    load_tensors(folder.join(MODEL_FILE)).unwrap()
}

fn tuning(weights: &Path) -> Config {
    quick_on_14().with(|config| config.training.weights = Some(weights.to_owned()))
}

/// Images of three classes alone.
fn three_classes() -> towers_cifar::Dataset {
    let mut data = few_images();
    data.classes.truncate(3);
    for split in [&mut data.train, &mut data.test] {
        split.labels.iter_mut().for_each(|label| *label %= 3);
    }
    data
}

#[track_caller]
fn assert_tensors(found: &Tensors, expected: &Tensors, same: impl Fn(&str) -> bool) {
    for tensor in found.iter().filter(|tensor| !tensor.name.starts_with("velocity/")) {
        let is_same = expected.get(tensor.name).is_some_and(|other| other.data() == tensor.data);
        assert_eq!(is_same, same(tensor.name), "{}", tensor.name);
    }
}

/// Nothing moves at a rate of 0 but the averages of batch normalization, which are frozen.
#[test]
fn a_run_begins_with_the_weights_and_their_preprocessing() {
    let folder = tempfile::tempdir().unwrap();
    let given = pretrained(folder.path());
    let mut config = tuning(&folder.path().join(MODEL_FILE));
    (config.training.lr, config.training.epochs) = (0.0, 1);
    config.training.freeze = vec!["batch_normalization*".to_owned()];
    // Other images have another mean, but the network has learnt with the given one.
    let same = trained(&cpus(1, 2), &config, &towers_cifar::synthetic(8, 45, 23));
    assert_tensors(&same.tensors, &given, |_| true);
    assert!(same.tensors.get("input/mean").is_some(), "a checkpoint has it too");

    config.training.new_head = true;
    let other_classes = trained(&cpus(1, 2), &config, &three_classes());
    assert_tensors(&other_classes.tensors, &given, |name| !name.starts_with("dense/"));
    let (weights, new_head) = (None, false);
    let random =
        config.with(|config| (config.training.weights, config.training.new_head) = (weights, new_head));
    let random = trained(&cpus(1, 2), &random, &three_classes());
    let head = |run: &Finished| run.tensors.get("dense/kernel").map(|kernel| kernel.data().to_vec());
    assert_eq!(head(&other_classes), head(&random), "the seed decides it");
}

/// A checkpoint has all that the file of the weights gave.
#[test]
fn a_resume_needs_no_file_of_weights() {
    let (folder, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pretrained(folder.path());
    let (config, devices) = (tuning(folder.path()), cpus(1, 2));
    let straight = trained(&devices, &config, &few_images());
    run_in(run.path(), &devices, &config, &few_images(), None, Some(5)).unwrap();
    folder.close().unwrap();
    let resume = Resume::newest(run.path()).unwrap();
    let resumed = run_in(run.path(), &devices, &config, &few_images(), Some(&resume), None).unwrap();
    assert_same(&straight, &resumed, "resumed");
    let checkpoint = run.path().join("checkpoints");
    let network = open_model(&checkpoint, &Assumed::default(), |_| panic!("no data are needed")).unwrap();
    assert_eq!(network.preprocessing().0.kind(), Preprocessing::SubtractPixelMean);
}

/// Images of another size: for networks that end with a global average.
#[test]
fn images_may_have_another_size_if_the_network_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    pretrained(folder.path());
    let mut data = towers_cifar::synthetic(8, 20, 10);
    for split in [&mut data.train, &mut data.test] {
        let rows = split.images.shape()[0];
        split.images =
            ndarray::Array4::from_shape_fn((rows, 40, 40, 3), |(n, y, x, c)| (n + y * x + c) as u8);
    }
    let config = tuning(folder.path());
    let error = towers_tests::failed(&cpus(1, 1), &config, &data).to_string();
    assert!(error.contains("the weights are for images of 32x32"), "{error}");
    let error = towers_tests::failed(&cpus(1, 1), &config, &three_classes()).to_string();
    assert!(error.contains("tells 10 classes apart, but the data have 3; `new_head` begins"), "{error}");
    let other = config.with(|config| config.training.model = "keras_cnn".to_owned());
    let error = towers_tests::failed(&cpus(1, 1), &other, &few_images()).to_string();
    assert!(
        error.contains("these are weights of the network small_cnn, but the run trains keras_cnn"),
        "{error}"
    );
    // Its dense layer is the head.
    let sized = config.with(|config| config.training.new_head = true);
    trained(&cpus(1, 1), &sized.with(|config| config.training.epochs = 1), &data);
}

/// The first two convolutions with their normalizations, and the last kernel without its bias.
fn frozen() -> Config {
    let mut config = quick_on_14();
    config.training.freeze =
        ["conv2d", "conv2d_1", "batch_normalization", "*_1/gamma", "batch_*_1/beta", "dense/kernel"]
            .map(str::to_owned)
            .into();
    config.training.ema = Some("momentum=0.9,every=2,overwrite-frequency=2".parse().unwrap());
    config
}

fn run(devices: usize, config: &Config) -> Finished {
    trained(&cpus(devices, 1), config, &few_images())
}

/// With an average of the weights, and whatever computes it.
#[test]
fn frozen_layers_stay_as_they_are_on_any_devices() {
    let config = frozen().with(|config| config.training.virtual_replicas = Some(4));
    let one = run(1, &config);
    let at_start = config.with(|config| (config.training.lr, config.training.epochs) = (0.0, 1));
    let stays = |name: &str| {
        let name = name.strip_prefix("ema/").unwrap_or(name);
        let layers = ["conv2d/", "conv2d_1/", "batch_normalization/", "batch_normalization_1/"];
        // The normalization behind it takes a bias away, so its gradient is 0.
        name == "dense/kernel"
            || name == "conv2d_2/bias"
            || layers.iter().any(|layer| name.starts_with(layer))
    };
    assert_tensors(&one.tensors, &run(1, &at_start).tensors, stays);
    let velocities = one.tensors.iter().filter(|tensor| tensor.name.starts_with("velocity/"));
    let expected = [
        "conv2d_2/kernel",
        "conv2d_2/bias",
        "batch_normalization_2/gamma",
        "batch_normalization_2/beta",
        "dense/bias",
    ];
    assert!(velocities.map(|tensor| &tensor.name["velocity/".len()..]).eq(expected));
    for devices in [2, 3] {
        assert_same_steps(&one, &run(devices, &config), &format!("{devices} devices"));
    }
    let stages = frozen().with(|config| {
        (config.training.micro_batches, config.placement.devices.pipeline_stages) = (Some(4), 3);
    });
    assert_same_steps(&one, &run(3, &stages), "three stages, of which the first trains nothing");
    let (_, resumed) = in_two_parts([&cpus(2, 1), &cpus(1, 2)], &config, &few_images(), 5);
    assert_same(&one, &resumed, "resumed");
}

/// Layers keep their values in the epochs in which they are frozen, on any devices and after a resume.
#[test]
fn layers_may_be_frozen_in_the_first_epochs() {
    let of = |epochs, frozen| {
        let mut config = quick_on_14();
        (config.training.epochs, config.training.freeze_epochs) = (epochs, Some(frozen));
        config.training.freeze = vec!["conv2d".to_owned()];
        config.training.virtual_replicas = Some(4);
        config
    };
    let kernel = |finished: &Finished| finished.tensors.get("conv2d/kernel").unwrap().data().to_vec();
    let begun = kernel(&run(1, &of(1, 1)));
    assert_eq!(kernel(&run(1, &of(1, 1).with(|config| config.training.lr = 0.0))), begun);
    assert_eq!(kernel(&run(1, &of(2, 2))), begun);
    let one = run(1, &of(2, 1));
    assert!(kernel(&one) != begun);
    assert_same_steps(&one, &run(3, &of(2, 1)), "three devices");
    let (_, resumed) = in_two_parts([&cpus(2, 1), &cpus(1, 2)], &of(2, 1), &few_images(), 3);
    assert_same(&one, &resumed, "resumed");
}

#[test]
fn patterns_without_parameters_are_refused() {
    for (patterns, says) in [
        (
            &["conv3*"][..],
            "`freeze` is `conv3*`, but must be the name of a layer or of its parameter, with * for anything: of conv2d, ",
        ),
        (&["conv2d/moving_mean"], "`freeze` is `conv2d/moving_mean`, but"),
        (&["conv*", "*"], "`freeze` is `conv* *`, but must be such that some layers are left to train"),
    ] {
        let config = quick_on_14();
        let config =
            config.with(|config| config.training.freeze = patterns.iter().map(|p| p.to_string()).collect());
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
    let error = quick_on_14().with(|config| config.training.new_head = true).check().unwrap_err().to_string();
    assert!(error.contains("`new_head` is given, but must be left out without `weights`"), "{error}");
}
