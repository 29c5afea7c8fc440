use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use towers_metrics::{ALWAYS, Values};

/// The figures of one epoch: a row of `history.csv`, an object of `history.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EpochRecord {
    /// The epoch, from 1.
    pub epoch: u64,
    /// `loss` and `acc` are means over the epoch's steps. `val_loss`, `val_acc` and those of
    /// [`metrics`](crate::Outputs::metrics) are of the validation data after the epoch; NaN without such data, and absent
    /// after an epoch that is not validated.
    #[serde(flatten)]
    pub metrics: Values,
    /// The learning rate of the epoch's last step.
    pub lr: f64,
    /// Wall time of the epoch, evaluation included.
    pub seconds: f64,
    /// Training samples a second, evaluation excluded.
    pub images_per_second: f64,
}

impl EpochRecord {
    /// An epoch of your own loop, counted from 1: the learning rate of its last step, and its metrics. Names with `val_` are of
    /// the validation data.
    ///
    /// ```
    /// use towers_callbacks::EpochRecord;
    ///
    /// let record = EpochRecord::new(1, 0.1, [("loss", 1.5), ("val_acc", 0.75)]);
    /// assert_eq!((record.get("lr"), record.get("val_accuracy")), (Some(0.1), Some(0.75)));
    /// ```
    pub fn new<N: Into<Cow<'static, str>>>(
        epoch: u64,
        lr: f64,
        metrics: impl IntoIterator<Item = (N, f64)>,
    ) -> Self {
        EpochRecord { epoch, lr, metrics: metrics.into_iter().collect(), ..EpochRecord::default() }
    }

    /// Whether the validation data were measured after the epoch.
    pub fn is_validated(&self) -> bool {
        self.get("val_loss").is_some()
    }

    /// The figure with this name: a metric, by our name or Keras', `lr` (or `learning_rate`), `seconds` or
    /// `images_per_second`.
    pub fn get(&self, name: &str) -> Option<f64> {
        match name {
            "seconds" => Some(self.seconds),
            _ => figure_of(&self.metrics, self.lr, self.images_per_second, name),
        }
    }
}

/// The names of the metrics of these epochs. Those that every run has come first.
pub fn metric_names<'h>(history: impl IntoIterator<Item = &'h EpochRecord>) -> Vec<&'h str> {
    let mut names = ALWAYS.to_vec();
    for name in history.into_iter().flat_map(|record| record.metrics.names()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The sums of an unfinished epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepRecord {
    /// The last of the steps, counted from 1 over the whole run.
    pub step: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// `loss` and `acc`, means over the samples.
    #[serde(flatten)]
    pub metrics: Values,
    /// The learning rate of the last step.
    pub lr: f64,
    /// Training samples a second.
    pub images_per_second: f64,
}

impl StepRecord {
    /// The figure with this name: a metric, by our name or Keras', `lr` (or `learning_rate`) or `images_per_second`.
    pub fn get(&self, name: &str) -> Option<f64> {
        figure_of(&self.metrics, self.lr, self.images_per_second, name)
    }
}

/// The figure with this name, of those that epochs and steps have.
fn figure_of(metrics: &Values, lr: f64, images_per_second: f64, name: &str) -> Option<f64> {
    match name {
        "lr" | "learning_rate" => Some(lr),
        "images_per_second" => Some(images_per_second),
        _ => metrics.get(name),
    }
}

impl Partial {
    /// The mean `loss` and `acc` so far.
    pub fn means(&self) -> Values {
        means(self.loss_sum, self.correct, self.samples.max(1))
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
        let metrics = means(loss_sum - before.loss_sum, correct - before.correct, samples);
        let images_per_second = samples as f64 / (seconds - before.seconds);
        Some(StepRecord { step, epoch, metrics, lr, images_per_second })
    }
}

fn means(loss_sum: f64, correct: f64, samples: u64) -> Values {
    Values::from_iter([("loss", loss_sum / samples as f64), ("acc", correct / samples as f64)])
}

/// The state of a run: with the tensors, everything for a resume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainState {
    /// Whole epochs done; the unfinished one is the next.
    #[serde(rename = "epoch")]
    pub epochs_done: u64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use serde_json::json;

    /// Checkpoints of all versions have the same keys.
    #[test]
    fn a_checkpoint_calls_the_epochs_done_epoch() {
        let state = testing::state(vec![testing::record(1, [0.5; 4]), testing::record(2, [0.5; 4])]);
        let saved = serde_json::to_value(&state).unwrap();
        assert_eq!((&saved["epoch"], &saved["epochs_done"]), (&json!(2), &json!(null)));
        assert_eq!(serde_json::from_value::<TrainState>(saved).unwrap(), state);
    }
}
