//! What the observers' tests share.

use crate::{Config, EpochRecord, Result, RunInfo, Snapshot, TrainState, recipe};
use checkpoint::Tensors;

/// `figures`: loss, accuracy, validation loss, validation accuracy.
pub(crate) fn record(epoch: u64, figures: [f64; 4]) -> EpochRecord {
    let [loss, acc, val_loss, val_acc] = figures;
    EpochRecord { epoch, loss, acc, val_loss, val_acc, lr: 0.005, seconds: 63.2, images_per_second: 791.5 }
}

/// The state after the epochs of `history`, ten steps each.
pub(crate) fn state(history: Vec<EpochRecord>) -> TrainState {
    let epoch = history.len() as u64;
    TrainState { epoch, step: 10 * epoch, history, ..TrainState::default() }
}

pub(crate) fn config(epochs: u64) -> Config {
    Config { epochs, ..recipe("quick").unwrap() }
}

pub(crate) fn run<'a>(config: &'a Config, state: &'a TrainState) -> RunInfo<'a> {
    RunInfo {
        config,
        state,
        train_samples: 50_000,
        val_samples: 10_000,
        steps_per_epoch: 1563,
        replicas: 1,
        devices: "the CPU (2 threads)".to_owned(),
    }
}

/// A network of one number, the step it is at.
pub(crate) struct Fake(pub f32);

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

    fn model_tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert("kernel", [1], vec![self.0])?;
        Ok(tensors)
    }
}
