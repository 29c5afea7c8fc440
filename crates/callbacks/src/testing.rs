//! Fixtures for the tests of callbacks.

use crate::{EpochRecord, Result, RunInfo, Snapshot, StepInfo, StepRecord, TrainState};
use towers_checkpoint::Tensors;
use towers_metrics::{ALWAYS, Values};

/// An epoch with these metrics: loss, accuracy, validation loss, validation accuracy.
pub fn record(epoch: u64, metrics: [f64; 4]) -> EpochRecord {
    let metrics = ALWAYS.into_iter().zip(metrics).collect();
    EpochRecord { epoch, metrics, lr: 0.005, seconds: 63.2, images_per_second: 791.5 }
}

/// An epoch without validation.
pub fn unvalidated(epoch: u64, loss: f64, acc: f64) -> EpochRecord {
    EpochRecord { metrics: means(loss, acc), ..record(epoch, [0.0; 4]) }
}

/// After so many steps of this epoch, of 32 samples each.
pub fn step(epoch: u64, steps_done: u64, steps_per_epoch: u64) -> StepInfo {
    let (samples, epochs, metrics, lr, seconds) = (32 * steps_done, 70, means(0.5, 0.5), 0.1, 1.0);
    StepInfo { epoch, epochs, steps_done, steps_per_epoch, samples, metrics, lr, seconds }
}

/// The metrics within an epoch.
pub fn means(loss: f64, acc: f64) -> Values {
    Values::from_iter([("loss", loss), ("acc", acc)])
}

/// The record up to this step, with ten steps an epoch.
pub fn step_record(step: u64, loss: f64, acc: f64) -> StepRecord {
    let (epoch, metrics) = (step.saturating_sub(1) / 10 + 1, means(loss, acc));
    StepRecord { step, epoch, metrics, lr: 0.1, images_per_second: 8.0 }
}

/// The state after the epochs of `history`, ten steps each.
pub fn state(history: Vec<EpochRecord>) -> TrainState {
    let epochs_done = history.len() as u64;
    TrainState { epochs_done, step: 10 * epochs_done, history, ..TrainState::default() }
}

/// A run of `epochs` epochs with this state.
pub fn run(epochs: u64, state: &TrainState) -> RunInfo<'_> {
    RunInfo {
        recipe: "quick",
        model: "small_cnn",
        epochs,
        state,
        train_samples: 50_000,
        val_samples: 10_000,
        validate_every: 1,
        steps_per_epoch: 1563,
        metrics: ALWAYS.map(str::to_owned).to_vec(),
        replicas: 1,
        devices: "the CPU (2 threads)".to_owned(),
        simd: "avx2",
        bf16: None,
        parameters: 1_234_567,
        flops: 25_000_000,
        options: vec![("lr".to_owned(), 0.5.into())],
        notes: Vec::new(),
    }
}

/// A network with one parameter, the number of its step.
pub struct Fake(pub f32);

impl Snapshot for Fake {
    fn all_tensors(&self) -> Result<Tensors> {
        let mut tensors = self.model_tensors()?;
        tensors.insert("velocity", [1], vec![-self.0])?;
        Ok(tensors)
    }

    fn optimizer_tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert("velocity", [1], vec![-self.0])?;
        Ok(tensors)
    }

    fn saved(&self) -> Result<serde_json::Value> {
        Ok(serde_json::json!({ "step": self.0 as u64 }))
    }

    fn model_tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert("kernel", [1], vec![self.0])?;
        Ok(tensors)
    }
}
