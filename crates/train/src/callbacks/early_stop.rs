use super::metric;
use super::spec::Spec;
use crate::{Error, Result};
use checkpoint::Mode;
use serde::{Deserialize, Serialize};

const OPTION: &str = "--early-stop";

/// When to stop before the last epoch: Keras' `EarlyStopping`. [`observers::EarlyStopping`](crate::observers::EarlyStopping) does it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EarlyStop {
    /// The metric to watch.
    pub monitor: String,
    /// Which way it gets better.
    pub mode: Mode,
    /// A change of this much or less is no improvement.
    pub min_delta: f64,
    /// Epochs without improvement before the run stops.
    pub patience: u64,
    /// A value that must be beaten before the patience begins anew.
    pub baseline: Option<f64>,
    /// Whether the run leaves the network of the best epoch in `model.safetensors`, instead of the last one's.
    pub restore_best_weights: bool,
    /// Epochs at the beginning that don't count.
    pub start_from_epoch: u64,
}

impl Default for EarlyStop {
    /// As in Keras, but for a patience of 5: with 0 the first worse epoch ends a run.
    fn default() -> Self {
        EarlyStop {
            monitor: "val_loss".to_owned(),
            mode: Mode::Auto,
            min_delta: 0.0,
            patience: 5,
            baseline: None,
            restore_best_weights: false,
            start_from_epoch: 0,
        }
    }
}

impl EarlyStop {
    /// Reads `METRIC[:OPTION=VALUE,...]`, with Keras' names for the options.
    ///
    /// ```
    /// let stop = train::EarlyStop::parse("val_acc:patience=10,min_delta=0.001,restore_best_weights")?;
    /// assert_eq!((stop.patience, stop.min_delta, stop.restore_best_weights), (10, 0.001, true));
    /// let error = train::EarlyStop::parse("val_acc:patient=10").unwrap_err().to_string();
    /// assert!(error.ends_with("did you mean `patience`?"), "{error}");
    /// # Ok::<(), train::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] naming what is wrong and what is accepted.
    pub fn parse(text: &str) -> Result<Self> {
        const KEYS: &[&str] =
            &["mode", "min_delta", "patience", "baseline", "restore_best_weights", "start_from_epoch"];
        let (metric, spec) = Spec::parse(OPTION, text, KEYS)?;
        let mut stop = EarlyStop { monitor: metric.to_owned(), ..EarlyStop::default() };
        spec.set_mode(&mut stop.mode)?;
        spec.set(&mut stop.min_delta, "min_delta", "a number")?;
        spec.set(&mut stop.patience, "patience", "a whole number of epochs")?;
        stop.baseline = spec.get("baseline", "a number")?;
        spec.set(&mut stop.restore_best_weights, "restore_best_weights", "true or false")?;
        spec.set(&mut stop.start_from_epoch, "start_from_epoch", "a whole number of epochs")?;
        stop.check()?;
        Ok(stop)
    }

    pub(crate) fn check(&self) -> Result<()> {
        metric::check(OPTION, &self.monitor)?;
        for (key, value) in [("min_delta", self.min_delta), ("baseline", self.baseline.unwrap_or(0.0))] {
            if !value.is_finite() {
                let (value, accepted) = (value.to_string(), "a finite number".to_owned());
                return Err(Error::Suboption { option: OPTION, key, value, accepted });
            }
        }
        Ok(())
    }
}
