//! The rule for the best epoch, shared by checkpoints, best weights, early stopping, plateaus and the live
//! view.

use crate::EpochRecord;
use serde_json::Value;
use towers_checkpoint::{Best, Mode};
use towers_metrics::ALWAYS;
use towers_options::{Kind, Refused, hint};

/// A metric of an epoch, by our name or Keras'.
pub(crate) const METRIC: Kind =
    Kind::form(read_metric, "loss, acc, val_loss, val_acc, or val_ and a metric of `metrics`");

fn read_metric(text: &str) -> Result<Value, Refused> {
    let name = towers_metrics::canonical(text);
    let is_measured =
        |name: &str| name.strip_prefix("val_").is_some_and(|name| towers_metrics::named(name).is_some());
    if ALWAYS.contains(&&*name) || is_measured(&name) {
        return Ok(text.into());
    }
    let mut known = Vec::from_iter(ALWAYS.into_iter().chain(["accuracy", "val_accuracy"]).map(str::to_owned));
    known.extend(towers_metrics::names().map(|name| format!("val_{name}")));
    let near = hint(text, known.iter().map(String::as_str));
    Err(Refused::MustBe(format!("one of {}{near}", known.join(", ")).into()))
}

/// The metrics that can be measured on the validation data besides loss and accuracy.
pub(crate) const MEASURED: Kind = Kind::List(&Kind::form(read_measured, towers_metrics::NAMES), Some(','));

fn read_measured(text: &str) -> Result<Value, Refused> {
    match towers_metrics::named(&towers_metrics::canonical(text)) {
        Some(metric) => Ok(metric.name().into()),
        None => {
            let near = hint(text, towers_metrics::names());
            let known = Vec::from_iter(towers_metrics::names()).join(", ");
            Err(Refused::MustBe(format!("one of {known}{near}").into()))
        }
    }
}

/// The direction in which a metric improves, if it is not given.
pub(crate) fn direction(metric: &str, mode: Mode) -> Mode {
    match mode {
        Mode::Auto if towers_metrics::about(metric).higher_is_better => Mode::Max,
        Mode::Auto => Mode::Min,
        mode => mode,
    }
}

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
        Monitor::of("val_acc")
    }
}

impl Monitor {
    /// Watches a metric in the direction in which it improves. Every change counts.
    pub fn of(metric: &str) -> Self {
        Monitor::new(metric, Mode::Auto, 0.0)
    }

    /// Watches a metric. Only the size of `min_delta` counts, as in Keras.
    pub fn new(metric: &str, mode: Mode, min_delta: f64) -> Self {
        let best = Best { metric: metric.to_owned(), mode: direction(metric, mode) };
        Monitor { best, min_delta: min_delta.abs() }
    }

    /// The value of the metric in an epoch.
    pub fn value(&self, record: &EpochRecord) -> Option<f64> {
        record.get(&self.best.metric)
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
