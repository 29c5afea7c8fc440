//! Support for the end-to-end tests of towers, which are in `tests/`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use towers_callbacks::{self, Checkpoints};
use towers_callbacks::{EpochRecord, Flow, Snapshot, StepInfo, TrainState};
use towers_checkpoint::Tensors;
use towers_config::Config;
use towers_program::{Device, Precision};
use towers_train::{End, Error, Observer, Outcome, Result, Resume, StopFlag, Training};

/// The result of a run: its end, and all its tensors.
pub struct Finished {
    /// The end of the run.
    pub outcome: Outcome,
    /// Parameters, running averages, and optimizer state.
    pub tensors: Tensors,
    /// The mean loss of the epoch after each step.
    pub losses: Vec<f64>,
}

impl Finished {
    /// The history as bits, without the times.
    pub fn figures(&self) -> Vec<[u64; 5]> {
        let history = self.outcome.state.history.iter();
        let bits = |record: &EpochRecord| {
            ["loss", "acc", "val_loss", "val_acc", "lr"]
                .map(|name| record.get(name).unwrap_or(f64::NAN).to_bits())
        };
        history.map(bits).collect()
    }
}

/// Stores the tensors at the end of a run and the loss of every step, and raises a flag at a given step.
struct Recorder {
    kept: Arc<Mutex<(Option<Tensors>, Vec<f64>)>>,
    stop: StopFlag,
    stop_after: Option<u64>,
    steps: u64,
}

impl Recorder {
    fn keep(&self, snapshot: &dyn Snapshot) -> towers_callbacks::Result<()> {
        let tensors = snapshot.all_tensors()?;
        self.kept.lock().expect("no observer panics").0 = Some(tensors);
        Ok(())
    }
}

impl Observer for Recorder {
    fn on_step(&mut self, step: &StepInfo) -> towers_callbacks::Result<()> {
        self.steps += 1;
        if self.stop_after == Some(self.steps) {
            self.stop.raise();
        }
        self.kept.lock().expect("no observer panics").1.push(step.metrics["loss"]);
        Ok(())
    }

    fn on_epoch_end(
        &mut self,
        _: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> towers_callbacks::Result<Flow> {
        Ok(Flow::Continue)
    }

    fn on_interrupt(&mut self, _: &TrainState, snapshot: &dyn Snapshot) -> towers_callbacks::Result<()> {
        self.keep(snapshot)
    }

    fn on_end(&mut self, _: &TrainState, snapshot: &dyn Snapshot) -> towers_callbacks::Result<()> {
        self.keep(snapshot)
    }
}

/// Runs `config` on `data` with additional observers, and stops it after `stop_after` steps.
///
/// # Errors
/// Those of the run.
pub fn run(
    config: &Config,
    data: &towers_cifar::Dataset,
    resume: Option<&Resume>,
    stop_after: Option<u64>,
    others: Vec<Box<dyn Observer>>,
) -> Result<Finished> {
    run_on(
        &towers_train::open_devices(&config.placement.devices, &config.training.arithmetic)?,
        config,
        data,
        resume,
        stop_after,
        others,
    )
}

/// As [`run`], on devices that the caller opened.
///
/// # Errors
/// Those of the run.
pub fn run_on(
    devices: &[Device],
    config: &Config,
    data: &towers_cifar::Dataset,
    resume: Option<&Resume>,
    stop_after: Option<u64>,
    others: Vec<Box<dyn Observer>>,
) -> Result<Finished> {
    let (kept, stop) = (Arc::new(Mutex::new((None, Vec::new()))), StopFlag::default());
    let recorder = Recorder { kept: Arc::clone(&kept), stop: stop.clone(), stop_after, steps: 0 };
    let mut observers = others;
    observers.push(Box::new(recorder));
    let outcome = Training::new(config, data.clone())
        .devices(devices)
        .resume(resume)
        .observers(&mut observers)
        .stop(&stop)
        .run()?;
    let (tensors, losses) = core::mem::take(&mut *kept.lock().expect("no observer panics"));
    Ok(Finished { outcome, tensors: tensors.expect("every run that ends well ends with a snapshot"), losses })
}

/// As [`run_on`], with checkpoints in a run's folder.
///
/// # Errors
/// Those of the run.
pub fn run_in(
    dir: &Path,
    devices: &[Device],
    config: &Config,
    data: &towers_cifar::Dataset,
    resume: Option<&Resume>,
    stop_after: Option<u64>,
) -> Result<Finished> {
    run_on(
        devices,
        config,
        data,
        resume,
        stop_after,
        vec![Box::new(Checkpoints::new(dir, &config.outputs.checkpoints)?)],
    )
}

/// The result of a run that goes well to its end.
///
/// # Panics
/// If it does not.
#[track_caller]
pub fn trained(devices: &[Device], config: &Config, data: &towers_cifar::Dataset) -> Finished {
    run_on(devices, config, data, None, None, Vec::new()).expect("the run goes well")
}

/// The error of a run that does not come to its end.
///
/// # Panics
/// If it does.
#[track_caller]
pub fn failed(devices: &[Device], config: &Config, data: &towers_cifar::Dataset) -> Error {
    run_on(devices, config, data, None, None, Vec::new()).err().expect("the run fails")
}

/// A run that is stopped after `stop_after` steps on devices, and resumes on others from its checkpoint.
///
/// # Panics
/// If it does not stop or does not go well.
#[track_caller]
pub fn in_two_parts(
    [before, after]: [&[Device]; 2],
    config: &Config,
    data: &towers_cifar::Dataset,
    stop_after: u64,
) -> (Resume, Finished) {
    let dir = tempfile::tempdir().expect("there is room");
    let stopped =
        run_in(dir.path(), before, config, data, None, Some(stop_after)).expect("the run goes well");
    assert_eq!(stopped.outcome.end, End::Interrupted);
    let resume = Resume::newest(dir.path()).expect("the run was saved");
    let resumed = run_in(dir.path(), after, config, data, Some(&resume), None).expect("the run goes well");
    (resume, resumed)
}

/// Checks that two runs have the same steps, history and weights, bit for bit.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn assert_same(a: &Finished, b: &Finished, what: &str) {
    assert_eq!(a.outcome.state.step, b.outcome.state.step, "{what}");
    assert_eq!(a.figures(), b.figures(), "{what}: another history");
    assert!(a.tensors == b.tensors, "{what}: other weights");
}

/// The same of two whole runs on CPUs, which know their loss after every step.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn assert_same_steps(a: &Finished, b: &Finished, what: &str) {
    assert_eq!(a.losses, b.losses, "{what}: other losses");
    assert_same(a, b, what);
}

/// Checks that two runs have about the same weights and losses, each to its tolerance, and the same accuracies.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn assert_near(a: &Finished, b: &Finished, [weights, losses]: [f64; 2], what: &str) {
    let distance = distance(&a.tensors, &b.tensors);
    assert!(distance < weights, "{what}: the weights differ by {distance:e}");
    for (a, b) in a.outcome.state.history.iter().zip(&b.outcome.state.history) {
        let near = |a: f64, b: f64| (a - b).abs() < losses;
        assert!(
            near(a.metrics["loss"], b.metrics["loss"]) && near(a.metrics["val_loss"], b.metrics["val_loss"]),
            "{what}:\n{a:?}\n{b:?}"
        );
        assert_eq!(
            (a.metrics["acc"], a.metrics["val_acc"]),
            (b.metrics["acc"], b.metrics["val_acc"]),
            "{what}"
        );
    }
}

/// Checks that two networks have about the same logits, relative to the largest.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{what}: logits up to {most:.2}, the worst differs by {worst:.1e}");
    assert!(most > 0.01 && worst <= tolerance * most.max(1.0), "{what}: {found:?}\n{expected:?}");
}

/// 45 images to train on: with batches of 14, three whole ones and one of three images, of which some replicas
/// and micro-batches get none.
pub fn few_images() -> towers_cifar::Dataset {
    towers_cifar::synthetic(3, 45, 23)
}

/// The recipe `quick` on batches of 14, with batch normalization, dropout and augmentation. Nothing in it depends
/// on the number of epochs.
///
/// # Panics
/// Never.
pub fn quick_on_14() -> Config {
    let mut config = towers_config::recipe("quick").expect("it is built in");
    (config.training.epochs, config.training.global_batch_size) = (2, Some(14));
    config.training.schedule = "constant".parse().expect("it is well-formed");
    config
}

/// The recipe `keras-cnn`, which has no batch normalization, on batches of 14 for one epoch.
///
/// # Panics
/// Never.
pub fn keras_cnn_on_14() -> Config {
    let mut config = towers_config::recipe("keras-cnn").expect("it is built in");
    (config.training.epochs, config.training.global_batch_size) = (1, Some(14));
    // RMSprop divides by the size of the gradient and so amplifies rounding; SGD shows the gradients directly.
    config.training.optimizer = "sgd:momentum=0.9".parse().expect("it is well-formed");
    config.training.lr = 0.01;
    config
}

/// The output of a Python script about a folder or file. Where Python lacks a module of it, says so.
///
/// # Panics
/// If the script fails for another reason.
pub fn read_by_python(what: &str, script: &str, path: &Path) -> Option<String> {
    let python = std::env::var("TOWERS_PYTHON").unwrap_or_else(|_| "python3".into());
    let output = match Command::new(&python).args(["-c", script]).arg(path).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let last = why.lines().last().unwrap_or_default().to_owned();
            assert!(last.contains("No module named"), "{why}");
            println!("SKIPPED: {what}: {python} says: {last} (TOWERS_PYTHON names another one)");
            return None;
        }
        Err(error) => {
            println!("SKIPPED: {what}: {python} can't be started: {error}");
            return None;
        }
    };
    Some(String::from_utf8(output.stdout).expect("it is text"))
}

/// An emulated GPU. Where there can be none, says why.
pub fn emulated(precision: Precision) -> Option<Device> {
    towers_tensor_cuda::emulated(precision).inspect_err(|why| println!("SKIPPED: emulated cuda: {why}")).ok()
}

/// `world` devices of the CPU with `threads` threads each.
pub fn cpus(world: usize, threads: usize) -> Vec<Device> {
    (0..world).map(|_| towers_tensor_cpu::device(threads)).collect()
}

/// The largest difference between two runs' tensors, relative to the largest element of each tensor.
pub fn distance(a: &Tensors, b: &Tensors) -> f64 {
    assert_eq!(a.len(), b.len(), "both runs have the same tensors");
    let mut worst = 0.0_f64;
    for (a, b) in a.iter().zip(b.iter()) {
        assert_eq!((a.name, a.shape), (b.name, b.shape));
        let largest = a.data.iter().fold(1e-3_f32, |m, x| m.max(x.abs()));
        for (x, y) in a.data.iter().zip(b.data) {
            worst = worst.max(f64::from((x - y).abs() / largest));
        }
    }
    worst
}

/// Compiles the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/data.md")]
struct DataPage;
