//! Which learning rate suits a configuration: `towers lr-find`.

mod curve;

pub use curve::LrCurve;

use crate::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use towers_callbacks::{Observer, Outputs, RunInfo, StepRecord};
use towers_config::{Config, differences};
use towers_dataset::Dataset;
use towers_optim::{Curve, Per, Schedule};
use towers_train::{StopFlag, Training, check_devices};

/// A range test: a short training in which the rate grows by the same factor with every step.
///
/// From L. Smith, "Cyclical learning rates for training neural networks" (2017). The defaults are those of fastai.
#[derive(Clone, Debug, PartialEq)]
pub struct LrRange {
    /// The rate of the first step.
    pub min_lr: f64,
    /// The rate of the last step.
    pub max_lr: f64,
    /// The most steps. There are no more than those of an epoch.
    pub steps: u64,
}

impl Default for LrRange {
    fn default() -> Self {
        LrRange { min_lr: 1e-7, max_lr: 10.0, steps: 100 }
    }
}

impl LrRange {
    /// The fewest steps that have a [suggestion](LrCurve::suggestion).
    pub const LEAST_STEPS: u64 = 13;

    /// Trains the configured network on the configured devices, and returns the losses.
    ///
    /// All options that decide the bits of a run hold, except for [those left out](left_out). The test ends early if the smoothed
    /// loss is more than four times the least one, or if a loss is not finite. It writes no file, and never validates.
    ///
    /// ```
    /// use towers_bench::LrRange;
    ///
    /// let mut config = towers_config::recipe("quick")?;
    /// (config.training.batch_size, config.placement.devices.threads) = (8, 1);
    /// let data = towers_train::cifar::synthetic(1, 256, 10);
    /// let curve = LrRange { steps: 20, ..LrRange::default() }.find(&config, data)?;
    /// assert_eq!((curve.lr.len(), curve.lr[0]), (20, 1e-7));
    /// # Ok::<(), towers_bench::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for rates that are not positive and rising, for fewer than [`LEAST_STEPS`](Self::LEAST_STEPS) steps, or
    /// for an epoch that has fewer; those of [`Training::run`].
    pub fn find(&self, config: &Config, data: Dataset) -> Result<LrCurve> {
        self.check()?;
        config.check()?;
        let replicas = check_devices(&config.placement.devices, &config.training.arithmetic)?;
        let steps = self.steps.min(steps_of_epoch(config, &data, replicas / config.stages()));
        if steps < Self::LEAST_STEPS {
            let accepted = format!("at least {}; give more images, or smaller batches", Self::LEAST_STEPS);
            return Err(Error::about("the number of steps of an epoch", steps, accepted));
        }
        let mut config = without_rates(config);
        // One epoch, so that no estimate of the run's time is made.
        (config.training.epochs, config.training.lr) = (1, self.min_lr);
        let factor = self.max_lr / self.min_lr;
        let curve = Curve::Exponential { factor, every: steps - 1, per: Per::Step, staircase: false };
        config.training.schedule = Schedule::from(curve);
        (config.outputs.log_every, config.outputs.terminate_on_nan) = (1, true);
        // The losses of the last rates are those of a run that goes wrong.
        config.outputs.no_warnings = true;
        let (stop, curve) = (StopFlag::default(), Arc::new(Mutex::new(LrCurve::default())));
        let watch = Watch { curve: Arc::clone(&curve), steps, stop: stop.clone() };
        Training::new(&config, data).observers(&mut [Box::new(watch)]).stop(&stop).run()?;
        let mut curve = std::mem::take(&mut *curve.lock().unwrap_or_else(PoisonError::into_inner));
        curve.diverged |= (curve.lr.len() as u64) < steps;
        Ok(curve)
    }

    fn check(&self) -> Result<()> {
        let LrRange { min_lr, max_lr, steps } = *self;
        let most = f64::from(f32::MAX);
        if !(f64::from(f32::MIN_POSITIVE)..most).contains(&min_lr) {
            return Err(Error::option("min_lr", min_lr, "a positive number below 3.4e38, such as 1e-7"));
        }
        if !(max_lr > min_lr && max_lr <= most) {
            let accepted = format!("a number above the least rate, {min_lr:e}, and at most 3.4e38");
            return Err(Error::option("max_lr", max_lr, accepted));
        }
        if steps < Self::LEAST_STEPS {
            return Err(Error::option("steps", steps, format!("at least {}", Self::LEAST_STEPS)));
        }
        Ok(())
    }
}

/// The steps of an epoch on so many replicas.
fn steps_of_epoch(config: &Config, data: &Dataset, replicas: usize) -> u64 {
    let all = data.train.len();
    let held_back = (all as f64 * config.training.augmentation.validation_split) as usize;
    let samples = all.saturating_sub(held_back);
    let batch = config.global_batch(replicas).min(samples);
    let kept = config.training.overfit_batches.map(|batches| batches.saturating_mul(batch));
    let samples = kept.map_or(samples, |kept| kept.min(samples));
    config.training.loader_options().batch_size(batch).steps(samples) as u64
}

/// The configuration without its schedule and without outputs.
fn without_rates(config: &Config) -> Config {
    let mut config = config.clone();
    let training = &mut config.training;
    training.schedule = Curve::Constant.into();
    (training.lr_scaling, training.reduce_lr_on_plateau) = (None, None);
    config.outputs = Outputs::default();
    config
}

/// The keys of the options that a range test leaves out: the schedule with its warm-up, the scaling of the rate, and callbacks.
///
/// ```
/// let mut config = towers_config::recipe("quick")?;
/// config.training.schedule = "cosine+warmup:epochs=1".parse()?;
/// config.outputs.terminate_on_nan = true;
/// assert_eq!(towers_bench::left_out(&config), ["schedule", "terminate_on_nan"]);
/// # Ok::<(), towers_bench::Error>(())
/// ```
pub fn left_out(config: &Config) -> Vec<String> {
    let plain = without_rates(config);
    let mut keys: Vec<String> =
        differences(config, &plain).into_iter().map(|difference| difference.key).collect();
    keys.dedup();
    keys
}

/// Records each step, and ends the run.
struct Watch {
    curve: Arc<Mutex<LrCurve>>,
    steps: u64,
    stop: StopFlag,
}

impl Observer for Watch {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> towers_callbacks::Result<()> {
        self.steps = self.steps.min(run.steps_per_epoch);
        Ok(())
    }

    fn on_record(&mut self, record: &StepRecord) -> towers_callbacks::Result<()> {
        let mut curve = self.curve.lock().unwrap_or_else(PoisonError::into_inner);
        let done = curve.lr.len() as u64;
        if done < self.steps && !curve.diverged {
            curve.add(record.lr, record.metrics["loss"]);
        }
        // The request to stop is for the time after the next step.
        if curve.diverged || done + 2 >= self.steps {
            self.stop.raise();
        }
        Ok(())
    }

    fn on_warning(&mut self, warning: &str) -> towers_callbacks::Result<()> {
        let mut curve = self.curve.lock().unwrap_or_else(PoisonError::into_inner);
        curve.warnings.push(warning.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_train::cifar;

    fn quick() -> Config {
        let mut config = towers_config::recipe("quick").unwrap();
        (config.training.batch_size, config.placement.devices.threads) = (16, 1);
        config
    }

    fn data() -> Dataset {
        cifar::synthetic(1, 960, 64)
    }

    #[test]
    fn the_suggestion_trains() {
        let config = quick();
        let curve = LrRange::default().find(&config, data()).unwrap();
        assert_eq!(curve.lr[0], 1e-7);
        let factor = 1e8f64.powf(1.0 / 59.0);
        assert!(curve.lr.windows(2).all(|pair| (pair[1] / pair[0] / factor - 1.0).abs() < 1e-9));
        assert!(curve.lr.len() <= 60 && curve.warnings.is_empty(), "{:?}", curve.warnings);
        let lr = curve.suggestion().unwrap();
        assert!((1e-4..0.1).contains(&lr), "{lr} {curve:?}");
        let train = |lr| {
            let mut config = quick();
            (config.training.epochs, config.training.lr) = (2, lr);
            let outcome = Training::new(&config, data()).run().unwrap();
            outcome.state.history[1].metrics["loss"]
        };
        let (suggested, least) = (train(lr), train(1e-7));
        assert!(suggested < 0.95 * least, "{lr}: {suggested}, not below {least}");
    }

    #[test]
    fn it_repeats_and_leaves_out_what_it_says() {
        let range = LrRange { steps: 15, ..LrRange::default() };
        let curve = range.find(&quick(), data()).unwrap();
        let mut other = quick();
        other.training.schedule = "time:decay=3+warmup:epochs=2".parse().unwrap();
        (other.training.lr, other.training.epochs) = (7.0, 30);
        other.outputs.max_time = Some(1);
        assert_eq!(range.find(&other, data()).unwrap(), curve);
        assert_eq!(left_out(&other), ["schedule", "max_time"]);
        other.training.seed += 1;
        assert_ne!(range.find(&other, data()).unwrap(), curve);
        other.training.overfit_batches = Some(14);
        assert_eq!(range.find(&other, data()).unwrap().lr.len(), 14);
        other.training.overfit_batches = None;
        // Two replicas have two batches a step.
        other.placement.devices.replicas = 2;
        assert_eq!(range.find(&other, data()).unwrap().lr, curve.lr);
    }

    /// At the rates of the end no network learns, and some have no finite loss.
    #[test]
    fn a_test_that_diverges_ends() {
        let range = LrRange { min_lr: 1.0, max_lr: 1e30, steps: 60 };
        let curve = range.find(&quick(), data()).unwrap();
        assert!(curve.diverged && curve.lr.len() < 59, "{curve:?}");
        assert!(curve.loss.iter().all(|loss| loss.is_finite()));
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |range: LrRange, says: &str| {
            let error = range.find(&quick(), data()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        let range = LrRange::default;
        for min_lr in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            refused(LrRange { min_lr, ..range() }, "`min_lr` is ");
        }
        for max_lr in [1e-7, 1e-8, f64::NAN, 1e39] {
            refused(LrRange { max_lr, ..range() }, "above the least rate, 1e-7, and at most 3.4e38");
        }
        refused(LrRange { steps: 12, ..range() }, "`steps` is 12, but must be at least 13");
        let mut config = quick();
        config.training.batch_size = 100;
        let error = range().find(&config, data()).unwrap_err().to_string();
        assert!(
            error.contains("steps of an epoch is 10, but must be at least 13; give more images"),
            "{error}"
        );
    }
}
