//! Keras' `ReduceLROnPlateau`: it multiplies the learning rate of the schedule.

use crate::monitor::{METRIC, MODE};
use crate::{EpochRecord, Monitor, Result};
use towers_checkpoint::Mode;
use towers_options::{Kind, Refused, options};

options! {
    /// The options for reducing the learning rate, with the names and defaults of Keras' `ReduceLROnPlateau`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReduceLrOnPlateau {
        ["Callbacks"]
        /// The metric to watch
        monitor: String = "val_loss".to_owned(), METRIC;
        /// The direction of improvement: min, max, or auto by the metric's name
        mode: Mode = Mode::Auto, MODE;
        /// The factor for the learning rate
        factor: f64 = 0.1, Kind::Such(|factor| (0.0..1.0).contains(&factor), "a number from 0 to below 1: the learning rate is multiplied by it");
        /// Epochs without improvement before the rate is reduced
        patience: u64 = 10, Kind::Whole(0);
        /// A change of this much or less is no improvement
        min_delta: f64 = 1e-4, Kind::Number;
        /// Epochs after a reduction that are ignored
        cooldown: u64 = 0, Kind::Whole(0);
        /// The lowest reduced rate
        min_lr: f64 = 0.0, Kind::Such(|lr| lr >= 0.0, "a number of at least 0");
    }
}

impl ReduceLrOnPlateau {
    /// Reads `METRIC[:OPTION=VALUE,...]`, with Keras' names for the options.
    ///
    /// ```
    /// let plateau = towers_callbacks::ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=3,min_lr=1e-5").unwrap();
    /// assert_eq!((plateau.factor, plateau.patience, plateau.min_lr), (0.5, 3, 1e-5));
    /// ```
    ///
    /// # Errors
    /// The value and the accepted values.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        towers_options::parse_table(Self::OPTIONS, "monitor", text)
    }
}

/// The state of [`ReduceLrOnPlateau`].
///
/// It depends only on the finished epochs. So every replica decides the same, and a resumed run repeats the
/// decisions ([`Plateau::after`]): the rate has the same bits as without the pause.
///
/// With a constant rate it equals Keras. With a schedule, the rate is that of the schedule times `factor` for
/// every plateau so far, but at least `min_lr`. Where the schedule itself is below `min_lr`, as in a warm-up,
/// the schedule's rate is used.
///
/// `patience` and `cooldown` count epochs with the metric, as in Keras.
///
/// ```
/// use towers_callbacks::{Plateau, ReduceLrOnPlateau};
///
/// let mut plateau = Plateau::new(ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=2,min_lr=0.03").unwrap());
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
/// ```
#[derive(Clone, Debug)]
pub struct Plateau {
    options: ReduceLrOnPlateau,
    monitor: Monitor,
    best: Option<f64>,
    /// Epochs since the best one, or since the last reduction.
    wait: u64,
    /// Epochs left to ignore.
    cooldown: u64,
    /// The factor for the schedule's rate.
    scale: f64,
    validate_every: u64,
}

impl Plateau {
    /// The state before the first epoch.
    pub fn new(options: ReduceLrOnPlateau) -> Self {
        let monitor = Monitor::new(&options.monitor, options.mode, options.min_delta);
        Plateau { options, monitor, best: None, wait: 0, cooldown: 0, scale: 1.0, validate_every: 1 }
    }

    /// Validation metrics count after every `epochs` only. The last epoch of a run has them too: without it, a resume
    /// with more epochs has the rates of a run that had them from the beginning.
    pub fn validate_every(self, epochs: u64) -> Self {
        Plateau { validate_every: epochs.max(1), ..self }
    }

    /// The state after these epochs.
    pub fn after(mut self, history: &[EpochRecord]) -> Self {
        history.iter().for_each(|record| self.observe_epoch(record));
        self
    }

    /// Takes an epoch into account.
    pub fn observe_epoch(&mut self, record: &EpochRecord) {
        let counts =
            !self.options.monitor.starts_with("val_") || record.epoch.is_multiple_of(self.validate_every);
        if let Some(value) = self.monitor.value(record).filter(|_| counts) {
            self.observe(value, record.lr);
        }
    }

    /// Takes the metric's value of an epoch into account; its last step had the learning rate `lr`.
    pub fn observe(&mut self, value: f64, lr: f64) {
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.wait = 0;
        }
        if self.monitor.improves(value, self.best) {
            (self.best, self.wait) = (Some(value), 0);
        } else if self.cooldown == 0 {
            self.wait += 1;
            // As in Keras, there is no reduction at the lowest rate, and the wait is not reset.
            if self.wait >= self.options.patience && lr > self.options.min_lr {
                self.scale *= self.options.factor;
                (self.cooldown, self.wait) = (self.options.cooldown, 0);
            }
        }
    }

    /// The learning rate, for a schedule's rate of `scheduled`.
    pub fn lr(&self, scheduled: f64) -> f64 {
        (scheduled * self.scale).max(self.options.min_lr.min(scheduled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{record, unvalidated};
    use serde_json::Value;

    /// Keras' results, written by `tests/golden/plateau.py`.
    #[test]
    fn reduces_when_keras_reduces() {
        let text = include_str!("../../../tests/golden/plateau.json");
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
                // Keras stores the rate as f32.
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

    /// The fifth epoch is the last of a run that was resumed with more.
    #[test]
    fn epochs_between_validations_do_not_count() {
        let options = |text: &str| ReduceLrOnPlateau::parse(text).unwrap();
        let at = |epoch| match epoch {
            2 | 4 | 5 | 6 => record(epoch, [1.0; 4]),
            _ => unvalidated(epoch, 1.0, 1.0),
        };
        let history: Vec<_> = (1..=6).map(at).collect();
        let scales = |text: &str| -> Vec<f64> {
            let plateau = Plateau::new(options(text)).validate_every(2);
            (1..=6).map(|epochs| plateau.clone().after(&history[..epochs]).lr(1.0)).collect()
        };
        assert_eq!(scales("val_loss:factor=0.5,patience=2"), [1.0, 1.0, 1.0, 1.0, 1.0, 0.5]);
        assert_eq!(scales("loss:factor=0.5,patience=2"), [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]);
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
}
