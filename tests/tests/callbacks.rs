//! Callbacks in whole runs: the learning rate at plateaus, files of the network, backups, and the end at a
//! NaN loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use towers_callbacks::{
    Checkpoints, ModelCheckpoint, StepHistory, StepRecord, TensorBoard, TensorBoardOptions,
};
use towers_callbacks::{EarlyStop, ModelCheckpointOptions, ReduceLrOnPlateau, SaveFreq};
use towers_checkpoint::Tensors;
use towers_config::{Config, recipe};
use towers_tests::{Finished, assert_same, cpus, in_two_parts, read_by_python, run};
use towers_train::{End, Observer, Resume};
use towers_trained::Classifier;

fn quick(epochs: u64) -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = epochs;
    config.training.batch_size = 16;
    config.training.schedule = "cosine:epochs=6".parse().unwrap();
    config.placement.devices.threads = 1;
    config
}

fn data() -> towers_cifar::Dataset {
    towers_cifar::synthetic(5, 64, 16)
}

fn ends(config: &Config, resume: Option<&Resume>, others: Vec<Box<dyn Observer>>) -> Finished {
    run(config, &data(), resume, None, others).unwrap()
}

fn checkpoints(folder: &Path, config: &Config) -> Box<dyn Observer> {
    Box::new(Checkpoints::new(folder, &config.outputs.checkpoints).unwrap())
}

/// A threshold that nothing beats: every epoch except the first is a plateau.
fn plateau() -> ReduceLrOnPlateau {
    ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=2,min_delta=100,cooldown=1,min_lr=1e-5").unwrap()
}

/// The schedule's rate at the last step of an epoch with `steps` steps.
fn scheduled(config: &Config, epoch: u64, steps: u64) -> f64 {
    let at = towers_optim::Progress::at_step(epoch * steps + steps - 1, steps, config.training.epochs);
    config.training.schedule.lr(config.training.lr, &at)
}

/// The best epoch, a patience of two, a cooldown of one: reductions after epochs 3 and 5 or 6, as in Keras.
#[test]
fn a_plateau_reduces_what_the_schedule_says() {
    let config = quick(6).with(|config| config.training.reduce_lr_on_plateau = Some(plateau()));
    let finished = ends(&config, None, Vec::new());
    let rates: Vec<f64> = finished.outcome.state.history.iter().map(|record| record.lr).collect();
    // After epoch 3 the patience is used up. Epoch 4 is the last one of the cooldown, and counts; so does
    // epoch 5.
    let scales = [1.0, 1.0, 1.0, 0.5, 0.5, 0.25];
    for (epoch, (rate, scale)) in (0..).zip(rates.into_iter().zip(scales)) {
        let scheduled = scheduled(&config, epoch, 4);
        assert_eq!(rate, (scheduled * scale).max(f64::min(1e-5, scheduled)), "epoch {}", epoch + 1);
    }
}

/// The rate is reduced on all replicas alike, and stays reduced after a resume in the middle of an epoch.
#[test]
fn a_resumed_plateau_has_the_same_bits() {
    for replicas in [1, 3] {
        let mut config = quick(6).with(|config| config.training.reduce_lr_on_plateau = Some(plateau()));
        config.placement.devices.replicas = replicas;
        config.training.virtual_replicas = Some(3);
        config.training.batch_size = 6;
        let straight = ends(&config, None, Vec::new());
        // 4 steps an epoch: the request to stop takes effect at the 19th, in the middle of the fifth.
        let devices = cpus(replicas, 1);
        let (resume, resumed) = in_two_parts([&devices, &devices], &config, &data(), 18);
        assert_eq!((resume.state.epochs_done, resume.state.partial.steps), (4, 3));
        assert_same(&straight, &resumed, &format!("{replicas} replicas"));
        let unreduced =
            ends(&config.with(|config| config.training.reduce_lr_on_plateau = None), None, Vec::new());
        assert!(straight.tensors != unreduced.tensors);
    }
}

/// Epochs without validation train the same. All replicas skip the same ones, and a resume with more epochs has the bits
/// of a run that had them from the beginning.
#[test]
fn validation_may_be_seldom() {
    let mut config = quick(6).with(|config| {
        config.training.reduce_lr_on_plateau = Some(plateau());
        config.training.virtual_replicas = Some(2);
        config.training.batch_size = 8;
    });
    let every = ends(&config.with(|config| config.training.reduce_lr_on_plateau = None), None, Vec::new());
    config.training.validate_every = 2;
    config.placement.devices.replicas = 2;
    let seldom = ends(&config, None, Vec::new());
    let of = |finished: &Finished, name: &str| {
        Vec::from_iter(finished.outcome.state.history.iter().map(|record| record.get(name)))
    };
    let measured = Vec::from_iter(of(&seldom, "val_loss").iter().map(Option::is_some));
    assert_eq!(measured, [false, true, false, true, false, true]);
    assert_eq!(of(&seldom, "loss"), of(&every, "loss"));
    assert_eq!(
        (of(&seldom, "val_acc")[1], of(&seldom, "val_loss")[5]),
        (of(&every, "val_acc")[1], of(&every, "val_loss")[5])
    );
    // The second part begins in the fifth epoch, after the evaluation of the fourth.
    let devices = cpus(2, 1);
    let (resume, resumed) = in_two_parts([&devices, &devices], &config, &data(), 18);
    assert_eq!(resume.state.epochs_done, 4);
    assert_same(&seldom, &resumed, "in two parts");

    // After three epochs the run is over, so the third is validated.
    let shorter = ends(&config.with(|config| config.training.epochs = 3), None, Vec::new());
    assert!(of(&shorter, "val_loss")[2].is_some());
    let stops =
        EarlyStop { monitor: "loss".to_owned(), min_delta: 100.0, patience: 2, ..EarlyStop::default() };
    let stopped = ends(&config.with(|config| config.outputs.early_stop = Some(stops)), None, Vec::new());
    let End::Stopped(reason) = &stopped.outcome.end else { panic!("{:?}", stopped.outcome.end) };
    assert!(reason.contains("; the network has val_loss"), "{reason}");
    assert_eq!(of(&stopped, "val_loss").len(), 3, "{reason}");
}

/// The warnings of a run.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Observer for Warnings {
    fn on_warning(&mut self, warning: &str) -> towers_callbacks::Result<()> {
        self.0.lock().unwrap().push(warning.to_owned());
        Ok(())
    }
}

/// Labels that belong to other images are suspected, in either set. A network that learns a few images by heart is not.
#[test]
fn shuffled_labels_are_suspected() {
    let warned = |shuffle: fn(&mut towers_cifar::Dataset)| {
        let mut config = quick(64);
        (config.training.batch_size, config.training.validate_every) = (4, 2);
        config.training.schedule = "constant".parse().unwrap();
        config.training.augmentation = towers_augment::ImageDataGenerator::default();
        let mut data = towers_cifar::synthetic(5, 40, 200);
        shuffle(&mut data);
        let warnings = Warnings::default();
        let finished = run(&config, &data, None, None, vec![Box::new(warnings.clone())]).unwrap();
        let last = finished.outcome.state.history.last().unwrap().metrics.clone();
        let told = warnings.0.lock().unwrap().iter().filter(|text| text.contains("be shuffled")).count();
        (told, last)
    };
    // The classes of ten images in a row, each once, in an order that changes.
    fn shuffled(labels: &mut towers_cifar::Split) {
        let order = towers_augment::LoaderOptions::new().seed(3).order(0, &vec![0; labels.len()]);
        let before = labels.labels.clone();
        order.iter().enumerate().for_each(|(at, &from)| labels.labels[at] = before[from as usize]);
    }
    let sets: [fn(&mut towers_cifar::Dataset); 3] =
        [|_| (), |data| shuffled(&mut data.test), |data| shuffled(&mut data.train)];
    let told = sets.map(warned);
    assert_eq!(told.each_ref().map(|(told, _)| *told), [0, 1, 1], "{told:?}");
}

/// Files with the epoch in their names are models for inference, with the optimizer's state or without.
#[test]
fn named_checkpoints_are_models() {
    let folder = tempfile::tempdir().unwrap();
    let options = ModelCheckpointOptions {
        path: "best/w-{epoch:02d}-{val_acc:.2f}.safetensors".into(),
        save_weights_only: true,
        ..ModelCheckpointOptions::default()
    };
    let whole = ModelCheckpointOptions {
        path: "{epoch}-{batch}.safetensors".into(),
        save_freq: SaveFreq::Batches(3),
        save_weights_only: false,
        ..options.clone()
    };
    for replicas in [1, 2] {
        let mut config = quick(2).with(|config| config.outputs.model_checkpoint = Some(whole.clone()));
        config.placement.devices.replicas = replicas;
        config.training.global_batch_size = Some(16);
        let files = [&options, &whole].map(|options| -> Box<dyn Observer> {
            Box::new(ModelCheckpoint::new(folder.path(), options.clone()).unwrap())
        });
        let finished = ends(&config, None, files.into());
        let device = towers_train::open_devices(&config.placement.devices, &config.training.arithmetic)
            .unwrap()
            .remove(0);
        for record in &finished.outcome.state.history {
            let name = format!("best/w-{:02}-{:.2}.safetensors", record.epoch, record.metrics["val_acc"]);
            let mut model = Classifier::load(&folder.path().join(name), &device, 16).unwrap();
            let evaluation = towers_trained::evaluate(&mut model, &data(), |_, _| {}).unwrap();
            assert!(
                (evaluation.acc - record.metrics["val_acc"]).abs() < 1e-6,
                "{} {}",
                evaluation.acc,
                record.metrics["val_acc"]
            );
        }
        // 8 steps in all, 4 an epoch.
        for name in ["1-3", "2-2"] {
            let path = folder.path().join(format!("{name}.safetensors"));
            Classifier::load(&path, &device, 16).unwrap();
            let tensors = towers_checkpoint::load_tensors(&path).unwrap();
            assert!(tensors.iter().any(|tensor| tensor.name.starts_with("velocity/")), "{name}");
            std::fs::remove_file(path).unwrap();
        }
        assert!(!folder.path().join("2-4.safetensors").exists());
    }
}

/// A checkpoint in the middle of an epoch: a killed run resumes from it with the same bits.
#[test]
fn a_backup_every_few_batches_is_a_checkpoint() {
    let mut config = quick(2);
    let straight = ends(&config, None, Vec::new());
    config.outputs.checkpoints.every_steps = 3;
    config.outputs.checkpoints.keep_last = 0;
    let folder = tempfile::tempdir().unwrap();
    let whole = ends(&config, None, vec![checkpoints(folder.path(), &config)]);
    assert_same(&straight, &whole, "looking changes nothing");
    let saved = folder.path().join("checkpoints");
    for later in ["epoch-0001", "epoch-0002", "step-00000006"] {
        std::fs::remove_dir_all(saved.join(later)).unwrap();
    }
    let resume = Resume::newest(folder.path()).unwrap();
    assert_eq!((resume.state.step, resume.state.partial.steps), (3, 3));
    let resumed = ends(&config, Some(&resume), Vec::new());
    assert_same(&straight, &resumed, "resumed");
}

/// The run's model is that of the best epoch by early stopping, even if a later one is saved.
#[test]
fn the_best_weights_are_restored() {
    let folder = tempfile::tempdir().unwrap();
    let stop = EarlyStop::parse("val_loss:patience=2,min_delta=100,restore_best_weights").unwrap();
    let config = quick(6).with(|config| config.outputs.early_stop = Some(stop.clone()));
    let checkpoints = Checkpoints::new(folder.path(), &config.outputs.checkpoints).unwrap();
    let files =
        ModelCheckpointOptions { path: "{epoch}.safetensors".into(), ..ModelCheckpointOptions::default() };
    let finished = ends(
        &config,
        None,
        vec![
            Box::new(checkpoints.best_weights(&stop).unwrap()),
            Box::new(ModelCheckpoint::new(folder.path(), files).unwrap()),
        ],
    );
    assert!(matches!(finished.outcome.end, End::Stopped(_)) && finished.outcome.state.epochs_done == 3);
    let kernel = |file: &str| {
        let tensors = towers_checkpoint::load_tensors(folder.path().join(file)).unwrap();
        let first = tensors.iter().find(|tensor| tensor.name.ends_with("kernel")).unwrap();
        first.data.to_vec()
    };
    assert_eq!(kernel("model.safetensors"), kernel("1.safetensors"));
    assert_ne!(kernel("model.safetensors"), kernel("3.safetensors"));
}

/// The average replaces the weights when early stopping ends the run, as in Keras at the end of `fit`. The
/// same happens when the ended run is started again. If the best epoch's weights are restored, Keras does so
/// after this.
#[test]
fn a_run_that_stops_early_ends_with_the_average() {
    for (replicas, stages, restores) in [(1, 1, false), (3, 1, false), (1, 2, false), (1, 1, true)] {
        let folder = tempfile::tempdir().unwrap();
        let stop = EarlyStop::parse("val_loss:patience=2,min_delta=100").unwrap();
        let stop = EarlyStop { restore_best_weights: restores, ..stop };
        let ema = Some("momentum=0.9".parse().unwrap());
        let mut config = quick(6).with(|config| {
            config.outputs.early_stop = Some(stop.clone());
            config.training.ema = ema;
        });
        (config.placement.devices.replicas, config.placement.devices.pipeline_stages) = (replicas, stages);
        let observers = || -> Vec<Box<dyn Observer>> {
            let mut checkpoints = Checkpoints::new(folder.path(), &config.outputs.checkpoints).unwrap();
            if restores {
                checkpoints = checkpoints.best_weights(&stop).unwrap();
            }
            vec![Box::new(checkpoints)]
        };
        let finished = ends(&config, None, observers());
        let model = || towers_checkpoint::load_tensors(folder.path().join("model.safetensors")).unwrap();
        let End::Stopped(reason) = &finished.outcome.end else { panic!("{:?}", finished.outcome.end) };
        assert_eq!(finished.outcome.state.epochs_done, 3);
        assert_eq!(reason.contains("; the average of the weights has val_loss "), !restores, "{reason}");
        let averages = finished.tensors.iter().filter_map(|t| Some((t.name.strip_prefix("ema/")?, t.data)));
        let averages: Vec<_> = averages.collect();
        assert!(averages.len() > 4);
        // Biases before a normalization do not change.
        for (name, average) in averages.into_iter().filter(|(name, _)| !restores || name.ends_with("kernel"))
        {
            assert_eq!(finished.tensors.get(name).unwrap().data() == average, !restores, "{name}");
            assert_eq!(model().get(name).unwrap().data() == average, !restores, "{name}");
        }
        // Started again, it ends immediately with the same network.
        let (before, resume) = (model(), Resume::newest(folder.path()).unwrap());
        let again = ends(&config, Some(&resume), observers());
        assert_eq!(again.outcome.state, finished.outcome.state);
        assert!(matches!(again.outcome.end, End::Stopped(_)), "{:?}", again.outcome.end);
        // The cuts of a pipeline, and so the order of the tensors, depend on measured times.
        let named = |tensors: &Tensors| -> BTreeMap<String, Vec<f32>> {
            tensors.iter().map(|tensor| (tensor.name.to_owned(), tensor.data.to_vec())).collect()
        };
        assert!(named(&again.tensors) == named(&finished.tensors), "{replicas} replicas, {stages} stages");
        assert!(named(&model()) == named(&before), "{replicas} replicas, {stages} stages");
    }
}

/// An observer that asks for the network in the middle of an epoch gets it on all replicas and stages,
/// whatever the configuration says.
#[test]
fn an_observer_alone_asks_for_the_network() {
    let options = ModelCheckpointOptions {
        path: "{epoch}-{batch}.safetensors".into(),
        save_freq: SaveFreq::Batches(3),
        ..ModelCheckpointOptions::default()
    };
    for (replicas, stages) in [(1, 1), (2, 1), (1, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = quick(2).with(|config| config.training.global_batch_size = Some(16));
        (config.placement.devices.replicas, config.placement.devices.pipeline_stages) = (replicas, stages);
        let files = ModelCheckpoint::new(folder.path(), options.clone()).unwrap();
        ends(&config, None, vec![Box::new(files)]);
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["1-3.safetensors", "2-2.safetensors"], "{replicas} replicas, {stages} stages");
    }
}

/// The loss diverges in the second epoch. The run stops by itself on any number of replicas, keeps its saved
/// files, and calls `on_end`.
#[test]
fn a_run_may_end_when_its_loss_is_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = quick(3).with(|config| config.outputs.terminate_on_nan = true);
    config.training.schedule = "milestones:at=1,factor=1e30".parse().unwrap();
    for (replicas, stages) in [(1, 1), (3, 1), (1, 2)] {
        config.placement.devices.replicas = replicas;
        config.placement.devices.pipeline_stages = stages;
        let Finished { outcome, .. } = ends(&config, None, vec![checkpoints(folder.path(), &config)]);
        let End::Stopped(reason) = outcome.end else { panic!("{:?}", outcome.end) };
        assert!(reason.starts_with("the loss became ") && reason.contains("in epoch 2, step "), "{reason}");
        assert_eq!(Resume::newest(folder.path()).unwrap().state.epochs_done, 1);
        assert!(folder.path().join("model.safetensors").exists());
    }
}

/// Also if it pauses between two records, in the middle of an epoch.
#[test]
fn records_within_the_epoch_are_those_of_a_run_without_a_pause() {
    let config = quick(2).with(|config| config.outputs.log_every = 2);
    let (straight, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = |folder: &Path| -> Vec<StepRecord> {
        let text = std::fs::read_to_string(folder.join("history-steps.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let observers = |folder: &Path| -> Vec<Box<dyn Observer>> {
        vec![Box::new(StepHistory::new(folder)), checkpoints(folder, &config)]
    };
    let finished = ends(&config, None, observers(straight.path()));
    let expected = records(straight.path());
    assert_eq!(
        expected.iter().map(|r| (r.step, r.epoch)).collect::<Vec<_>>(),
        [(2, 1), (4, 1), (6, 2), (8, 2)]
    );
    for (record, pair) in finished.outcome.state.history.iter().zip(expected.chunks(2)) {
        let mean = (pair[0].metrics["loss"] + pair[1].metrics["loss"]) / 2.0;
        assert!(
            (mean - record.metrics["loss"]).abs() < 1e-6 && pair[1].lr == record.lr,
            "{mean}, not {}",
            record.metrics["loss"]
        );
    }
    run(&config, &data(), None, Some(4), observers(parts.path())).unwrap();
    let resume = Resume::newest(parts.path()).unwrap();
    assert_eq!((resume.state.step, records(parts.path()).len()), (5, 2));
    ends(&config, Some(&resume), observers(parts.path()));
    let bits =
        |r: &StepRecord| [r.step, r.metrics["loss"].to_bits(), r.metrics["acc"].to_bits(), r.lr.to_bits()];
    let figures = |records: Vec<StepRecord>| records.iter().map(bits).collect::<Vec<_>>();
    assert_eq!(figures(records(parts.path())), figures(expected));
    // One step after three would be noise: the record of three is left out.
    let config = config.with(|config| (config.outputs.log_every, config.training.epochs) = (3, 1));
    ends(&config, None, observers(straight.path()));
    assert_eq!(records(straight.path()).iter().map(|record| record.step).collect::<Vec<_>>(), [4]);
}

const READER: &str = r#"
import json, pathlib, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import metadata
folder = pathlib.Path(sys.argv[1])
steps = EventAccumulator(str(folder.parent / "steps"), size_guidance={"scalars": 0})
steps.Reload()
hparams = {}
for file in folder.parent.glob("*tfevents*"):
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.tag == metadata.SESSION_START_INFO_TAG:
                start = metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
                hparams = {name: value.number_value or value.string_value for name, value in start.hparams.items()}
read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "images": 0})
read.Reload()
plugins = {}
for file in folder.iterdir():
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            plugins.setdefault(value.metadata.plugin_data.plugin_name, set()).add(value.tag)
print(json.dumps({
    "plugins": {name: sorted(tags) for name, tags in plugins.items()},
    "loss": [[point.step, point.value] for point in read.Scalars("epoch_loss")],
    "steps": [point.step for point in steps.Scalars("batch_loss")],
    "hparams": hparams,
    "histograms": {tag: [[point.step, point.histogram_value.num, point.histogram_value.sum, sum(point.histogram_value.bucket)]
        for point in read.Histograms(tag)] for tag in read.Tags()["histograms"]},
    "images": [[point.step, point.width, point.height, list(point.encoded_image_string[:8])] for point in read.Images("augmented_batch")],
}))
"#;

#[test]
fn tensorboard_reads_scalars_histograms_and_images() {
    let folder = tempfile::tempdir().unwrap();
    let options = TensorBoardOptions { path: folder.path().into(), histogram_freq: 2, images: 10 };
    let board = TensorBoard::new(options);
    let config = quick(4).with(|config| config.outputs.log_every = 2);
    let finished = ends(&config, None, vec![Box::new(board)]);
    let Some(text) = read_by_python("tensorboard", READER, &folder.path().join("train")) else { return };
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let losses: Vec<(u64, f32)> = serde_json::from_value(read["loss"].clone()).unwrap();
    let own =
        finished.outcome.state.history.iter().map(|record| (record.epoch - 1, record.metrics["loss"] as f32));
    assert_eq!(losses, own.collect::<Vec<_>>());
    assert_eq!(read["steps"], serde_json::json!([2, 4, 6, 8, 10, 12, 14, 16]));
    assert_eq!(
        (&read["hparams"]["global_batch_size"], &read["hparams"]["model"]),
        (&16.0.into(), &"small_cnn".into())
    );
    assert_eq!(read["plugins"]["images"], serde_json::json!(["augmented_batch"]));
    assert_eq!(
        read["plugins"]["histograms"].as_array().unwrap().len(),
        read["histograms"].as_object().unwrap().len()
    );
    for (tag, points) in read["histograms"].as_object().unwrap() {
        let points: Vec<(u64, f64, f64, f64)> = serde_json::from_value(points.clone()).unwrap();
        assert_eq!(points.iter().map(|point| point.0).collect::<Vec<_>>(), [1, 3], "{tag}");
        let tensor = finished.tensors.get(tag.strip_suffix("/histogram").unwrap()).unwrap();
        let sum: f64 = tensor.data().iter().map(|value| f64::from(*value)).sum();
        let (_, num, last_sum, counted) = points[1];
        assert_eq!((num, counted), (tensor.data().len() as f64, num), "{tag}");
        assert!((last_sum - sum).abs() < 1e-9 * (1.0 + sum.abs()), "{tag}: {last_sum}, not {sum}");
    }
    assert!(read["histograms"].as_object().unwrap().len() > 4);
    let images: Vec<(u64, u32, u32, Vec<u8>)> = serde_json::from_value(read["images"].clone()).unwrap();
    assert_eq!(images.len(), 4);
    for (_, width, height, head) in images {
        assert_eq!((width, height, head), (8 * 34 - 2, 2 * 34 - 2, b"\x89PNG\r\n\x1a\n".to_vec()));
    }
}
