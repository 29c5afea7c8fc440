//! The rule for the best epoch, shared by checkpoints, best weights, early stopping, plateaus and the live
//! view.

use crate::EpochRecord;
use checkpoint::{Best, Mode};
use options::Kind;

/// The metrics of an epoch, as [`EpochRecord::metric`] knows them.
pub(crate) const METRIC: Kind =
    Kind::OneOf(&["loss", "acc", "val_loss", "val_acc", "accuracy", "val_accuracy"]);

/// The direction in which a metric improves.
pub(crate) const MODE: Kind = Kind::OneOf(&["auto", "min", "max"]);

/// A metric, its direction of improvement, and the least change that counts: Keras' `MonitorCallback`.
///
/// The first finite value is the best so far. A later one is better if it beats the best by more than
/// `min_delta`. The first of equal values stays the best.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(crate) best: Best,
    pub(crate) min_delta: f64,
}

impl Default for Monitor {
    /// The validation accuracy.
    fn default() -> Self {
        Monitor::new("val_acc", Mode::Auto, 0.0)
    }
}

impl Monitor {
    /// Watches a metric. Only the size of `min_delta` counts, as in Keras.
    pub fn new(metric: &str, mode: Mode, min_delta: f64) -> Self {
        Monitor { best: Best { metric: metric.to_owned(), mode }, min_delta: min_delta.abs() }
    }

    /// The value of the metric in an epoch.
    pub fn value(&self, record: &EpochRecord) -> Option<f64> {
        record.metric(&self.best.metric)
    }

    /// The best epoch of a history; `None` where the metric never was finite.
    pub fn best_of<'h>(&self, history: &'h [EpochRecord]) -> Option<&'h EpochRecord> {
        let better = |best: Option<&'h EpochRecord>, record: &'h EpochRecord| {
            let improves = self.improves(self.value(record)?, best.and_then(|best| self.value(best)));
            if improves { Some(record) } else { best }
        };
        history.iter().fold(None, |best, record| better(best, record).or(best))
    }

    /// Whether `value` is better than `reference` by more than `min_delta`; the first finite one is.
    pub fn improves(&self, value: f64, reference: Option<f64>) -> bool {
        // `min_delta` makes the value worse, in the direction of the metric.
        let sign = if self.best.improves(1.0, Some(0.0)) { -1.0 } else { 1.0 };
        match reference {
            None => value.is_finite(),
            Some(_) => self.best.improves(value + sign * self.min_delta, reference),
        }
    }
}
