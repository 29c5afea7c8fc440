//! Runs on pictures of class folders at another size than 32x32, with different height and width.

use std::path::Path;
use std::sync::{Arc, Mutex};
use towers_config::{Config, DataFiles, RECIPES, When};
use towers_config::{load_data, open_model, recipe, save_config};
use towers_dataset::{Dataset, Split};
use towers_pictures::{Pictures, picture};
use towers_tests::{Finished, assert_close, assert_same, cpus, failed, run, run_in, trained};
use towers_train::{Error, Observer, Resume};
use towers_trained::{Assumed, Classifier, ImageSize, Trained};
use towers_trained::{evaluate, export};

const SIZE: ImageSize = ImageSize { height: 30, width: 25 };

/// Pictures that are larger than the network's input, and not square.
fn draw(folder: &Path, per_class: usize) {
    let drawn = towers_cifar::synthetic(4, 3 * per_class, 0).train;
    for (k, image) in drawn.images.outer_iter().enumerate() {
        let small = image::RgbImage::from_raw(32, 32, image.iter().copied().collect()).unwrap();
        let large = image::imageops::resize(&small, 90, 70, image::imageops::FilterType::Nearest);
        let class = folder.join(["ant", "bee", "cat"][k % 3]);
        std::fs::create_dir_all(&class).unwrap();
        large.save(class.join(format!("{k:03}.png"))).unwrap();
    }
}

/// A few steps of a recipe.
fn short(name: &str, folder: &Path) -> Config {
    let mut config = recipe(name).unwrap();
    (config.training.epochs, config.training.batch_size, config.training.global_batch_size) = (2, 5, None);
    (config.training.virtual_replicas, config.outputs.checkpoints.save_best) = (None, None);
    config.placement.devices.replicas = 1;
    config.training.data.dataset = folder.to_string_lossy().into_owned();
    config.training.data.image_size = Some(SIZE);
    config
}

fn data(config: &Config) -> Dataset {
    let data = load_data(&config.training.data, &config.placement.files, |_| ()).unwrap();
    assert_eq!((data.train.shape(), data.test.shape()), ([30, 25, 3], [30, 25, 3]));
    data
}

fn bytes(split: &Split) -> Vec<u8> {
    split.images.iter().copied().collect()
}

fn logits(trained: &Trained, pictures: &[u8]) -> Vec<f32> {
    let mut classifier = Classifier::new(trained, &towers_tensor_cpu::device(1), 4).unwrap();
    assert_eq!(classifier.image_size(), SIZE);
    classifier.logits(pictures).unwrap()
}

/// Every recipe trains. Its results are evaluated, exported and read again. `resnet18.rs` trains the recipe of that name.
///
/// Two of them, one with a moving average, also stop and resume with the same bits, although the pictures stay in their files
/// in the run that stops.
#[test]
fn every_recipe_trains_and_its_network_is_used() {
    let place = tempfile::tempdir().unwrap();
    let pictures = place.path().join("pictures");
    draw(&pictures, 5);
    for (name, _) in RECIPES.iter().filter(|(name, _)| *name != "resnet18") {
        let config = short(name, &pictures);
        let data = data(&config);
        let run = |folder: &Path, data: &Dataset, resume: Option<&Resume>, stop_after| {
            run_in(folder, &cpus(1, 2), &config, data, resume, stop_after).unwrap()
        };
        let straight = place.path().join(format!("{name}-straight"));
        let finished = run(&straight, &data, None, None);
        if ["minigooglenet", "airbench94"].contains(name) {
            let in_files = DataFiles { stream: When::Always, ..config.placement.files.clone() };
            let streamed = load_data(&config.training.data, &in_files, |_| ()).unwrap();
            assert!(streamed.train.files.is_some());
            let parts = place.path().join(format!("{name}-parts"));
            run(&parts, &streamed, None, Some(1));
            let resume = Resume::newest(&parts).unwrap();
            assert_eq!(resume.config.training.data.image_size, Some(SIZE));
            assert_eq!(resume.state.partial.steps, 2, "the middle of an epoch");
            let resumed = run(&parts, &streamed, Some(&resume), None);
            assert_same(&finished, &resumed, name);
        }
        save_config(&config, &straight).unwrap();
        is_used(name, &straight, &pictures, &data, &finished);
    }
}

fn is_used(name: &str, run: &Path, pictures: &Path, data: &Dataset, finished: &Finished) {
    let trained = Trained::read(run).unwrap();
    let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 4).unwrap();
    let evaluation = evaluate(&mut classifier, data, |_, _| {}).unwrap();
    let last = finished.outcome.state.history.last().unwrap();
    assert!(
        (evaluation.loss - last.metrics["val_loss"]).abs() < 1e-3 * (1.0 + last.metrics["val_loss"]),
        "{name}: {evaluation:?}"
    );
    let test = bytes(&data.test);
    let expected = logits(&trained, &test);
    let one = picture(pictures.join("ant/000.png"), [SIZE.height, SIZE.width, 3]).unwrap();
    assert_eq!(classifier.classify(&one).unwrap().len(), 1);

    let to = |file: &str| run.join(file);
    export(&trained, &to("net.py")).unwrap();
    // It has everything except the names of the classes.
    let dataset = Some(pictures.to_string_lossy().into_owned());
    // A state dict can't express a division by each channel's standard deviation.
    let by_channel = name.starts_with("airbench94");
    let assumed = Assumed { dataset, ..Assumed::default() };
    let load = |set: towers_config::DataSet| load_data(&set, &DataFiles::default(), |_| ());
    if !by_channel {
        let back = open_model(&to("net.safetensors"), &assumed, load).unwrap();
        assert_eq!((&back.network, back.classes.len()), (&trained.network, 3), "{name}");
        assert_close(name, &logits(&back, &test), &expected, 1e-5);
    }
    export(&trained, &to("net.onnx")).unwrap();
    export(&trained, &to("again.safetensors")).unwrap();
    assert_eq!(logits(&Trained::read(&to("again.safetensors")).unwrap(), &test), expected, "{name}");

    let error =
        evaluate(&mut classifier, &towers_cifar::synthetic(1, 1, 5), |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("32x32 images, but must be of 30x25 images"), "{error}");
    let checkpoint = run.join(towers_callbacks::CHECKPOINTS);
    let opened = open_model(&checkpoint, &Assumed::default(), |_| panic!("no data are needed")).unwrap();
    assert_eq!(logits(&opened, &test), expected, "{name}");
}

/// Counts images as they are read.
struct Reading(Arc<Mutex<Vec<[usize; 2]>>>);

impl Observer for Reading {
    fn on_read(&mut self, done: usize, all: usize) -> towers_callbacks::Result<()> {
        self.0.lock().unwrap().push([done, all]);
        Ok(())
    }
}

/// The first pass makes the digest. What is measured on the images that aren't held back takes three more. The images to
/// validate on have a digest too.
#[test]
fn every_pass_over_pictures_in_files_is_told() {
    let place = tempfile::tempdir().unwrap();
    draw(place.path(), 6);
    let mut config = short("minigooglenet", place.path());
    config.training.epochs = 1;
    config.placement.files.stream = When::Always;
    let augmentation = &mut config.training.augmentation;
    (augmentation.validation_split, augmentation.featurewise_std_normalization) = (0.2, true);
    let streamed = load_data(&config.training.data, &config.placement.files, |_| ()).unwrap();
    let told = Arc::default();
    let reading: Box<dyn Observer> = Box::new(Reading(Arc::clone(&told)));
    run(&config, &streamed, None, None, vec![reading]).unwrap();
    let told = told.lock().unwrap();
    let (all, own) = (streamed.train.len(), streamed.train.len() * 4 / 5);
    let passes = [all, own, own, own, all - own];
    assert_eq!(*told, passes.map(|all| [[0, all], [all, all]]).as_flattened());
}

/// Virtual replicas have the same bits on any number of devices, and replicas compute the sums of one.
#[test]
fn towers_and_virtual_replicas_are_one_device() {
    let place = tempfile::tempdir().unwrap();
    draw(place.path(), 6);
    let mut config = short("quick", place.path());
    config.training.global_batch_size = Some(6);
    config.training.virtual_replicas = Some(3);
    let data = data(&config);
    let one = trained(&cpus(1, 1), &config, &data);
    for world in [2, 3] {
        assert_same(&one, &trained(&cpus(world, 1), &config, &data), &format!("{world} devices"));
    }
    // Without normalization and dropout, several replicas equal one up to rounding.
    let mut config = config.with(|config| config.training.virtual_replicas = None);
    (config.training.model, config.training.sync_batch_norm) = ("small_cnn".into(), true);
    let loss = |world| trained(&cpus(world, 1), &config, &data).outcome.state.history[1].metrics["loss"];
    assert!((loss(1) - loss(2)).abs() < 1e-4, "{} {}", loss(1), loss(2));
}

/// The network is built for the images of the data, even if the configuration has another size.
#[test]
fn what_does_not_fit_is_told() {
    let place = tempfile::tempdir().unwrap();
    draw(place.path(), 2);
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = short("quick", place.path());
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    let size = |height, width| Some(ImageSize { height, width });
    let told = refused(&|config| {
        (config.training.model, config.training.data.image_size) = ("airbench94".into(), size(24, 64));
    });
    assert_eq!(
        told,
        "`data.image_size` is 24x64, but must be at least 25x25 (height x width) with the network airbench94"
    );
    let mut named = short("quick", place.path()).training.data;
    named.dataset = "cifar10".into();
    let told = load_data(&named, &DataFiles::default(), |_| ()).unwrap_err().to_string();
    assert!(
        told.starts_with("`data.image_size` is 30x25, but must be left out with the data set `cifar10`"),
        "{told}"
    );
    let told = refused(&|config| {
        (config.training.augmentation.zca_whitening, config.training.data.image_size) =
            (true, size(224, 224));
    });
    assert!(told.contains("zca") && told.contains("224x224"), "{told}");

    let small = Pictures::class_folders(place.path()).image_size(8, 24).read().unwrap();
    let config = short("quick", place.path()).with(|config| config.training.model = "keras_cnn".into());
    let error = failed(&cpus(1, 1), &config, &small);
    assert!(matches!(error, Error::Config(towers_config::Error::Network(_))), "{error}");
    assert_eq!(
        error.to_string(),
        "keras_cnn can't take images of 8x24 (height x width): it needs at least 10x10"
    );
}

/// Files from before there were other sizes, and outputs that belong to the run.
#[test]
fn configurations_of_earlier_versions_are_read() {
    let mut json = serde_json::to_value(recipe("keras-cnn").unwrap()).unwrap();
    assert!(json["data"]["image_size"].is_null());
    json["data"].as_object_mut().unwrap().remove("image_size");
    for key in ["csv_log", "tensorboard", "plot"] {
        assert!(json.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    let old: Config = serde_json::from_value(json).unwrap();
    assert_eq!(old, recipe("keras-cnn").unwrap());
    let file =
        towers_config::read_recipe("like = 'quick'\n[data]\ndataset = 'pets'\nimage_size = '30x25'", "mine")
            .unwrap();
    assert_eq!(file.training.data.image_size, Some(SIZE));
    let written = towers_config::write_recipe(&file).unwrap();
    assert!(written.contains("image_size = \"30x25\""), "{written}");
    assert_eq!(towers_config::read_recipe(&written, "mine").unwrap(), file);
}
