//! Names of metrics and which way they get better, as options give them.

use crate::spelling::hint;
use crate::{Error, Result};
use checkpoint::{Best, Mode};

/// The metrics of an epoch, as [`EpochRecord::metric`](crate::EpochRecord::metric) knows them.
const METRICS: [&str; 6] = ["loss", "acc", "val_loss", "val_acc", "accuracy", "val_accuracy"];

/// Refuses a metric that an epoch has no figure for.
pub(crate) fn check(option: &'static str, metric: &str) -> Result<()> {
    if METRICS.contains(&metric) {
        return Ok(());
    }
    let accepted = format!("one of loss, acc, val_loss, val_acc{}", hint(metric, METRICS));
    Err(Error::Option { option, value: format!("`{metric}`"), accepted })
}

/// The mode of this name: `auto`, `min` or `max`.
///
/// ```
/// assert_eq!(train::mode("--mode", "max")?, checkpoint::Mode::Max);
/// let error = train::mode("--mode", "mim").unwrap_err().to_string();
/// assert_eq!(error, "--mode is `mim`, but must be auto, min or max; did you mean `min`?");
/// # Ok::<(), train::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] with `option` for any other.
pub fn mode(option: &'static str, name: &str) -> Result<Mode> {
    named_mode(name).map_err(|accepted| Error::Option { option, value: format!("`{name}`"), accepted })
}

/// The mode of this name, or what would be accepted.
pub(super) fn named_mode(name: &str) -> core::result::Result<Mode, String> {
    match name {
        "auto" => Ok(Mode::Auto),
        "min" => Ok(Mode::Min),
        "max" => Ok(Mode::Max),
        _ => Err(format!("auto, min or max{}", hint(name, ["auto", "min", "max"]))),
    }
}

/// A metric, the direction in which it gets better, and how much of a change counts: Keras' `MonitorCallback`.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    pub(crate) best: Best,
    pub(crate) min_delta: f64,
}

impl Monitor {
    pub(crate) fn new(metric: &str, mode: Mode, min_delta: f64) -> Self {
        Monitor { best: Best { metric: metric.to_owned(), mode }, min_delta: min_delta.abs() }
    }

    /// Whether `value` is better than `reference` by more than `min_delta`; the first finite one is.
    pub(crate) fn improves(&self, value: f64, reference: Option<f64>) -> bool {
        // The value is handicapped by `min_delta` in the direction that is worse.
        let sign = if self.best.improves(1.0, Some(0.0)) { -1.0 } else { 1.0 };
        match reference {
            None => value.is_finite(),
            Some(_) => self.best.improves(value + sign * self.min_delta, reference),
        }
    }
}
