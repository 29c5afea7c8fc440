use serde::{Deserialize, Deserializer, Serialize};

/// The figures of one epoch: a row of `history.csv`, an object of `history.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// The epoch, from 1.
    pub epoch: u64,
    /// The mean training loss over the epoch's steps.
    pub loss: f64,
    /// The training accuracy over the epoch's steps.
    pub acc: f64,
    /// The loss on the validation data after the epoch. JSON has no number for NaN or infinity, so both are `null` in
    /// it, and NaN when it is read.
    #[serde(deserialize_with = "number_or_nan")]
    pub val_loss: f64,
    /// The accuracy on the validation data after the epoch.
    pub val_acc: f64,
    /// The learning rate of the epoch's last step.
    pub lr: f64,
    /// Wall time of the epoch, evaluation included.
    pub seconds: f64,
    /// Training samples a second, evaluation excluded.
    pub images_per_second: f64,
}

fn number_or_nan<'d, D: Deserializer<'d>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl EpochRecord {
    /// The figure with Keras' name `metric`: `loss`, `acc` (or `accuracy`), `val_loss`, `val_acc` (or
    /// `val_accuracy`), `lr`.
    pub fn metric(&self, metric: &str) -> Option<f64> {
        match metric {
            "loss" => Some(self.loss),
            "acc" | "accuracy" => Some(self.acc),
            "val_loss" => Some(self.val_loss),
            "val_acc" | "val_accuracy" => Some(self.val_acc),
            "lr" => Some(self.lr),
            _ => None,
        }
    }
}

/// The sums of an unfinished epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    /// Steps done in this epoch.
    pub steps: u64,
    /// Samples seen.
    pub samples: u64,
    /// The sum of their losses.
    pub loss_sum: f64,
    /// The number of correctly classified samples.
    pub correct: f64,
    /// Seconds spent on them.
    pub seconds: f64,
    /// The learning rate of the last step.
    pub lr: f64,
    /// The sums at the last step with a [`StepRecord`].
    #[serde(default)]
    pub recorded: Recorded,
}

/// The sums of an unfinished epoch at its last step with a [`StepRecord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Samples seen.
    pub samples: u64,
    /// The sum of their losses.
    pub loss_sum: f64,
    /// The number of correctly classified samples.
    pub correct: f64,
    /// Seconds spent on them.
    pub seconds: f64,
}

/// The figures of the steps since the record before, or since the beginning of the epoch: an object of
/// `history-steps.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The last of the steps, counted from 1 over the whole run.
    pub step: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The mean loss of the samples.
    pub loss: f64,
    /// The accuracy on the samples.
    pub acc: f64,
    /// The learning rate of the last step.
    pub lr: f64,
    /// Training samples a second.
    pub images_per_second: f64,
}

impl Partial {
    /// The mean loss and accuracy so far.
    pub fn means(&self) -> (f64, f64) {
        let samples = self.samples.max(1) as f64;
        (self.loss_sum / samples, self.correct / samples)
    }

    /// The record of the steps since the one before. `None` if there is no step since.
    pub fn record(&mut self, epoch: u64, step: u64) -> Option<StepRecord> {
        let before = self.recorded;
        let samples = self.samples.saturating_sub(before.samples);
        if samples == 0 {
            return None;
        }
        let Partial { loss_sum, correct, seconds, lr, .. } = *self;
        self.recorded = Recorded { samples: self.samples, loss_sum, correct, seconds };
        let samples = samples as f64;
        let (loss, acc) = ((loss_sum - before.loss_sum) / samples, (correct - before.correct) / samples);
        let images_per_second = samples / (seconds - before.seconds);
        Some(StepRecord { step, epoch, loss, acc, lr, images_per_second })
    }
}

/// The state of a run: with the tensors, everything for a resume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Epochs done.
    pub epoch: u64,
    /// Steps done in the whole run.
    pub step: u64,
    /// The unfinished epoch after those.
    pub partial: Partial,
    /// Samples per batch over all replicas.
    pub global_batch: usize,
    /// The share of every batch that each replica computes: `even`, or a weight for each, as in `2,1,1`. With
    /// `auto` in the configuration, these are the measured weights.
    pub device_weights: String,
    /// The number of replicas.
    #[serde(default)]
    pub replicas: usize,
    /// What decides the bits of sums and products: the model of the GPU, or the instruction set of the CPU.
    #[serde(default)]
    pub arithmetic: String,
    /// Its training data.
    pub data: Option<Fingerprint>,
    /// The figures of each finished epoch.
    pub history: Vec<EpochRecord>,
}

/// The identity of the training data, to detect other data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The class names, by label.
    pub classes: Vec<String>,
    /// The number of training samples, including those of the validation split.
    pub samples: usize,
    /// SHA-256 of their labels and pixels, in hexadecimal.
    pub sha256: String,
}
