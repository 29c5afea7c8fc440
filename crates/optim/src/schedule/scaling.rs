use crate::text::check;
use crate::{Progress, Result};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The linear scaling rule: a batch `k` times as large as the one that a rate was found for takes a rate `k` times as high.
///
/// A run may not bear the full rate at its start. So it begins with the rate as it was found, which then rises in a straight
/// line, with every step, to `k` times that within the first `warmup_epochs`. The factor multiplies whatever a
/// [`Schedule`](crate::Schedule) gives: of constant rates this is the "gradual warm-up" of P. Goyal et al., "Accurate, large
/// minibatch SGD" (2017), section 2.2, who took 5 epochs.
///
/// A `k` below 1, of a batch that is smaller, lowers the rate in the same way.
///
/// ```
/// use towers_optim::{LinearScaling, Progress};
///
/// // A rate for batches of 64, on four replicas of 64.
/// let scaling = LinearScaling { base_batch: 64, warmup_epochs: 5 };
/// let factor = |epoch: u64| scaling.factor(256, &Progress::at_step(epoch * 100, 100, 70));
/// assert_eq!([factor(0), factor(1), factor(5), factor(69)], [1.0, 1.6, 4.0, 4.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields))]
pub struct LinearScaling {
    /// The samples of the batch that the base rate is for.
    pub base_batch: usize,
    /// How long the rate rises; 0 for the full one from the first step on.
    pub warmup_epochs: u64,
}

impl LinearScaling {
    /// What the rate at `progress` is multiplied with, for batches of `batch` samples over all devices.
    pub fn factor(&self, batch: usize, progress: &Progress) -> f64 {
        let full = batch as f64 / self.base_batch as f64;
        let length = self.warmup_epochs as f64 * progress.steps_per_epoch as f64;
        let step = progress.step as f64;
        if step < length { 1.0 + (full - 1.0) * step / length } else { full }
    }

    /// Checks a value that was built or deserialized.
    ///
    /// # Errors
    /// For a base batch of 0.
    pub fn validate(&self) -> Result<()> {
        check("linear scaling", "base", self.base_batch, (self.base_batch > 0, "at least 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Schedule, Warmup};

    fn at(step: u64) -> Progress {
        Progress::at_step(step, 10, 8)
    }

    /// It is a warm-up of the full rate that starts at the base rate.
    #[test]
    fn it_composes_with_every_schedule() {
        let scaling = LinearScaling { base_batch: 32, warmup_epochs: 2 };
        for schedule in ["constant", "poly", "cosine", "time:decay=0.1", "step:every=2", "milestones:at=1/5"]
        {
            let schedule: Schedule = schedule.parse().unwrap();
            let warmed = schedule.clone().with_warmup(Warmup::epochs(2).starting_at(0.25));
            for step in 0..80 {
                let lr = schedule.lr(0.1, &at(step)) * scaling.factor(128, &at(step));
                let other = warmed.lr(0.4, &at(step));
                assert!((lr - other).abs() <= 1e-15, "{schedule}, step {step}: {lr} {other}");
            }
        }
    }

    #[test]
    fn the_rate_goes_from_one_to_the_quotient_of_the_batches() {
        let of = |warmup_epochs, batch, step| {
            LinearScaling { base_batch: 50, warmup_epochs }.factor(batch, &at(step))
        };
        assert_eq!([of(0, 150, 0), of(0, 150, 70)], [3.0, 3.0]);
        assert_eq!([of(1, 150, 0), of(1, 150, 5), of(1, 150, 9), of(1, 150, 10)], [1.0, 2.0, 2.8, 3.0]);
        assert_eq!([of(1, 25, 0), of(1, 25, 5), of(1, 25, 10)], [1.0, 0.75, 0.5]);
        // The base batch itself changes no bit of a rate.
        assert!((0..80).all(|step| of(3, 50, step) == 1.0));
        let lr = Schedule::from(Curve::poly(1.0)).lr(0.013, &at(7));
        assert_eq!((lr * of(3, 50, 7)).to_bits(), lr.to_bits());
    }

    #[test]
    fn a_base_of_nothing_is_refused() {
        let error = LinearScaling { base_batch: 0, warmup_epochs: 5 }.validate().unwrap_err().to_string();
        assert_eq!(error, "linear scaling: base is 0, but must be at least 1");
    }
}
