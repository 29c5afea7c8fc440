//! Support for the end-to-end tests of towers, which are in `tests/`.
#![forbid(unsafe_code)]

use checkpoint::Tensors;
use program::Device;
use std::path::Path;
use std::sync::{Arc, Mutex};
use train::callbacks::{self, Checkpoints};
use train::{
    Config, EpochRecord, Flow, Observer, Outcome, Result, Resume, Snapshot, StepInfo, StopFlag, TrainState,
    cifar,
};

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
        history.map(|r| [r.loss, r.acc, r.val_loss, r.val_acc, r.lr].map(f64::to_bits)).collect()
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
    fn keep(&self, snapshot: &dyn Snapshot) -> callbacks::Result<()> {
        let tensors = snapshot.all_tensors()?;
        self.kept.lock().expect("no observer panics").0 = Some(tensors);
        Ok(())
    }
}

impl Observer for Recorder {
    fn on_step(&mut self, step: &StepInfo) -> callbacks::Result<()> {
        self.steps += 1;
        if self.stop_after == Some(self.steps) {
            self.stop.raise();
        }
        self.kept.lock().expect("no observer panics").1.push(step.loss);
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> callbacks::Result<Flow> {
        Ok(Flow::Continue)
    }

    fn on_interrupt(&mut self, _: &TrainState, snapshot: &dyn Snapshot) -> callbacks::Result<()> {
        self.keep(snapshot)
    }

    fn on_end(&mut self, _: &TrainState, snapshot: &dyn Snapshot) -> callbacks::Result<()> {
        self.keep(snapshot)
    }
}

/// Runs `config` on `data` with additional observers, and stops it after `stop_after` steps.
///
/// # Errors
/// Those of the run.
pub fn run(
    config: &Config,
    data: &cifar::Dataset,
    resume: Option<&Resume>,
    stop_after: Option<u64>,
    others: Vec<Box<dyn Observer>>,
) -> Result<Finished> {
    run_on(
        &train::open_devices(&config.placement.devices, &config.training.arithmetic)?,
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
    data: &cifar::Dataset,
    resume: Option<&Resume>,
    stop_after: Option<u64>,
    others: Vec<Box<dyn Observer>>,
) -> Result<Finished> {
    let (kept, stop) = (Arc::new(Mutex::new((None, Vec::new()))), StopFlag::default());
    let recorder = Recorder { kept: Arc::clone(&kept), stop: stop.clone(), stop_after, steps: 0 };
    let mut observers = others;
    observers.push(Box::new(recorder));
    let outcome = train::train_on(devices, config, data.clone(), resume, &mut observers, &stop)?;
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
    data: &cifar::Dataset,
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

/// `world` devices of the CPU with `threads` threads each.
pub fn cpus(world: usize, threads: usize) -> Vec<Device> {
    (0..world).map(|_| tensor_cpu::device(threads)).collect()
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
