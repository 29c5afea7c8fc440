//! `--reduce-lr-on-plateau`: Keras' `ReduceLROnPlateau`, which multiplies whatever the schedule says.

use super::metric::{self, Monitor};
use super::spec::Spec;
use crate::{EpochRecord, Error, Result};
use checkpoint::Mode;
use serde::{Deserialize, Serialize};

const OPTION: &str = "--reduce-lr-on-plateau";
const FACTOR: &str = "from 0 to below 1: the learning rate is multiplied with it";

/// When the learning rate is reduced, and by how much. Names and defaults are those of Keras' `ReduceLROnPlateau`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReduceLrOnPlateau {
    /// The metric to watch.
    pub monitor: String,
    /// Which way it gets better.
    pub mode: Mode,
    /// What the rate is multiplied with, below 1.
    pub factor: f64,
    /// Epochs without improvement before the rate is reduced.
    pub patience: u64,
    /// A change of this much or less is no improvement.
    pub min_delta: f64,
    /// Epochs after a reduction that don't count.
    pub cooldown: u64,
    /// The rate is never reduced below this.
    pub min_lr: f64,
}

impl Default for ReduceLrOnPlateau {
    fn default() -> Self {
        ReduceLrOnPlateau {
            monitor: "val_loss".to_owned(),
            mode: Mode::Auto,
            factor: 0.1,
            patience: 10,
            min_delta: 1e-4,
            cooldown: 0,
            min_lr: 0.0,
        }
    }
}

impl ReduceLrOnPlateau {
    /// Reads `METRIC[:OPTION=VALUE,...]`, with Keras' names for the options.
    ///
    /// ```
    /// let plateau = train::ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=3,min_lr=1e-5")?;
    /// assert_eq!((plateau.factor, plateau.patience, plateau.min_lr), (0.5, 3, 1e-5));
    /// # Ok::<(), train::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] naming what is wrong and what is accepted.
    pub fn parse(text: &str) -> Result<Self> {
        const KEYS: &[&str] = &["mode", "factor", "patience", "min_delta", "cooldown", "min_lr"];
        let (metric, spec) = Spec::parse(OPTION, text, KEYS)?;
        let mut plateau = ReduceLrOnPlateau { monitor: metric.to_owned(), ..ReduceLrOnPlateau::default() };
        spec.set_mode(&mut plateau.mode)?;
        spec.set(&mut plateau.factor, "factor", FACTOR)?;
        spec.set(&mut plateau.patience, "patience", "a whole number of epochs")?;
        spec.set(&mut plateau.min_delta, "min_delta", "a number")?;
        spec.set(&mut plateau.cooldown, "cooldown", "a whole number of epochs")?;
        spec.set(&mut plateau.min_lr, "min_lr", "a learning rate")?;
        plateau.check()?;
        Ok(plateau)
    }

    pub(crate) fn check(&self) -> Result<()> {
        metric::check(OPTION, &self.monitor)?;
        let ReduceLrOnPlateau { factor, min_delta, min_lr, .. } = *self;
        for (key, value, holds, accepted) in [
            ("factor", factor, (0.0..1.0).contains(&factor), FACTOR),
            ("min_delta", min_delta, min_delta.is_finite(), "a finite number"),
            ("min_lr", min_lr, min_lr.is_finite() && min_lr >= 0.0, "a finite number of at least 0"),
        ] {
            if !holds {
                let (value, accepted) = (value.to_string(), accepted.to_owned());
                return Err(Error::Suboption { option: OPTION, key, value, accepted });
            }
        }
        Ok(())
    }
}

/// [`ReduceLrOnPlateau`] at work.
///
/// It is a function of the epochs done and nothing else: every replica has the same figures and decides alike, and a resumed run
/// decides again what it decided before ([`Plateau::after`]), so the rate has the same bits as without the pause.
///
/// With Keras' constant rate it does what Keras does. Above a schedule the rate is the schedule's, times `factor` for every plateau so
/// far, but not below `min_lr`; where the schedule itself is below that, as in a warm-up, the rate is the schedule's.
///
/// ```
/// use train::{Plateau, ReduceLrOnPlateau};
///
/// let mut plateau = Plateau::new(ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=2,min_lr=0.03")?);
/// let losses = [1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9];
/// let rates: Vec<f64> = losses
///     .into_iter()
///     .map(|loss| {
///         let rate = plateau.lr(0.1);
///         plateau.observe(loss, rate);
///         rate
///     })
///     .collect();
/// assert_eq!(rates, [0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.03, 0.03]);
/// # Ok::<(), train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plateau {
    options: ReduceLrOnPlateau,
    monitor: Monitor,
    best: Option<f64>,
    /// Epochs since the best one, or since the last reduction.
    wait: u64,
    /// Epochs left that don't count.
    cooldown: u64,
    /// What the schedule's rate is multiplied with.
    scale: f64,
}

impl Plateau {
    /// Before the first epoch.
    pub fn new(options: ReduceLrOnPlateau) -> Self {
        let monitor = Monitor::new(&options.monitor, options.mode, options.min_delta);
        Plateau { options, monitor, best: None, wait: 0, cooldown: 0, scale: 1.0 }
    }

    /// After these epochs.
    pub fn after(options: ReduceLrOnPlateau, history: &[EpochRecord]) -> Self {
        let mut plateau = Plateau::new(options);
        history.iter().for_each(|record| plateau.observe_epoch(record));
        plateau
    }

    /// Takes an epoch into account.
    pub(crate) fn observe_epoch(&mut self, record: &EpochRecord) {
        if let Some(value) = record.metric(&self.monitor.best.metric) {
            self.observe(value, record.lr);
        }
    }

    /// Takes the metric's value after an epoch into account, whose last step had the learning rate `lr`.
    pub fn observe(&mut self, value: f64, lr: f64) {
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.wait = 0;
        }
        if self.monitor.improves(value, self.best) {
            (self.best, self.wait) = (Some(value), 0);
        } else if self.cooldown == 0 {
            self.wait += 1;
            // At the least rate the patience is at its end for good, as in Keras.
            if self.wait >= self.options.patience && lr > self.options.min_lr {
                self.scale *= self.options.factor;
                (self.cooldown, self.wait) = (self.options.cooldown, 0);
            }
        }
    }

    /// The rate where the schedule says `scheduled`.
    pub fn lr(&self, scheduled: f64) -> f64 {
        (scheduled * self.scale).max(self.options.min_lr.min(scheduled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `tests/golden/plateau.py` made the sequences and ran Keras on them.
    #[test]
    fn reduces_when_keras_reduces() {
        let text = include_str!("../../../../tests/golden/plateau.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut reductions = 0;
        for case in &cases {
            let number = |key: &str| case[key].as_f64().unwrap();
            let mut plateau = Plateau::new(ReduceLrOnPlateau {
                mode: if case["mode"] == "min" { Mode::Min } else { Mode::Max },
                factor: number("factor"),
                patience: case["patience"].as_u64().unwrap(),
                min_delta: number("min_delta"),
                cooldown: case["cooldown"].as_u64().unwrap(),
                min_lr: number("min_lr"),
                ..ReduceLrOnPlateau::default()
            });
            let values: Vec<f64> = serde_json::from_value(case["values"].clone()).unwrap();
            let rates: Vec<f64> = serde_json::from_value(case["rates"].clone()).unwrap();
            let mut before = 1.0;
            for (value, rate) in values.into_iter().zip(rates) {
                plateau.observe(value, before);
                // Keras keeps the rate in f32.
                assert!(
                    (plateau.lr(1.0) / rate - 1.0).abs() < 1e-6,
                    "{} is not {rate}: {case}",
                    plateau.lr(1.0)
                );
                reductions += usize::from(plateau.lr(1.0) < before);
                before = plateau.lr(1.0);
            }
        }
        assert!(cases.len() > 50 && reductions > 50, "{reductions} reductions");
    }

    #[test]
    fn a_schedule_below_the_least_rate_is_left_alone() {
        let options = ReduceLrOnPlateau::parse("loss:factor=0.1,patience=1,min_lr=0.01").unwrap();
        let mut plateau = Plateau::new(options);
        assert_eq!((plateau.lr(0.3), plateau.lr(0.001)), (0.3, 0.001));
        plateau.observe(1.0, 0.3);
        plateau.observe(1.0, 0.3);
        assert_eq!((plateau.lr(0.3), plateau.lr(0.05), plateau.lr(0.001)), (0.3 * 0.1, 0.01, 0.001));
        plateau.observe(1.0, 0.005);
        assert_eq!(plateau.lr(0.3), 0.3 * 0.1, "below the least rate nothing is reduced");
        plateau.observe(f64::NAN, 0.3);
        assert_eq!(plateau.lr(3.0), 3.0 * (0.1 * 0.1), "what is not finite is no improvement");
    }

    #[test]
    fn mistakes_are_told() {
        for (text, says) in [
            (
                "val_los",
                "--reduce-lr-on-plateau is `val_los`, but must be one of loss, acc, val_loss, val_acc; did you mean `val_loss`?",
            ),
            ("val_loss:facto=0.5", "did you mean `factor`?"),
            (
                "val_loss:factor=1",
                "--reduce-lr-on-plateau: factor is 1, but must be from 0 to below 1: the learning rate is multiplied",
            ),
            ("val_loss:patience=-1", "patience is `-1`, but must be a whole number of epochs"),
            ("val_loss:min_lr=-1", "min_lr is -1, but must be a finite number of at least 0"),
            ("val_loss:min-delta=nan", "min_delta is NaN, but must be a finite number"),
            ("val_loss:mode=mx", "did you mean `max`?"),
            ("val_loss:factor=0.5,factor=0.5", "must be given with factor once"),
        ] {
            let error = ReduceLrOnPlateau::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
