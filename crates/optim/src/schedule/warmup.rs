use super::Per;
use crate::text::check;
use crate::{Progress, Result};

/// A linear warm-up: for its first `length` epochs or steps a run's rate is the curve's times
/// `start + (1 - start) * step / steps of the warm-up`.
///
/// The ramp rises with every step also where its length is given in epochs. It multiplies the curve and does not
/// delay it: milestones stay the epochs of the run, and a cosine ends with the run. So a warm-up over a curve is
/// PyTorch's `LinearLR` chained with the curve's scheduler (`ChainedScheduler`), the ramp of P. Goyal et al., "Accurate,
/// large minibatch SGD" (2017). Keras' `CosineDecay(warmup_steps=...)` puts its curve behind the ramp instead.
///
/// From a start of 0, as usual, the first step has rate 0. To warm up from the rate of one device to `n` times that
/// rate use the start `1 / n`.
///
/// ```
/// use towers_optim::{Curve, Progress, Schedule, Warmup};
///
/// // Four GPUs: four times the rate, reached within 5 epochs from the rate of one.
/// let schedule = Schedule::from(Curve::Constant).with_warmup(Warmup::epochs(5).starting_at(0.25));
/// let lr = |epoch: u64| schedule.lr(0.4, &Progress::at_step(epoch * 100, 100, 70));
/// assert_eq!([lr(0), lr(4), lr(5), lr(6)], [0.1, 0.34, 0.4, 0.4]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmup {
    /// How long it takes.
    pub length: u64,
    /// Whether `length` counts steps or epochs.
    pub per: Per,
    /// The first step's part of the full rate.
    pub start: f64,
}

impl Warmup {
    /// A warm-up of some epochs, from 0.
    pub fn epochs(length: u64) -> Self {
        Warmup { length, per: Per::Epoch, start: 0.0 }
    }

    /// A warm-up of some steps, from 0.
    pub fn steps(length: u64) -> Self {
        Warmup { length, per: Per::Step, start: 0.0 }
    }

    /// The same from another start.
    pub fn starting_at(self, start: f64) -> Self {
        Warmup { start, ..self }
    }

    /// What the curve's rate is multiplied with at `progress`.
    pub fn factor(&self, progress: &Progress) -> f64 {
        let length = match self.per {
            Per::Step => self.length as f64,
            Per::Epoch => self.length as f64 * progress.steps_per_epoch as f64,
        };
        let step = progress.step as f64;
        if step < length { self.start + (1.0 - self.start) * step / length } else { 1.0 }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let option = if self.per == Per::Epoch { "epochs" } else { "steps" };
        check("warmup", option, self.length, (self.length > 0, "at least 1"))?;
        check("warmup", "start", self.start, ((0.0..=1.0).contains(&self.start), "a number from 0 to 1"))
    }
}
