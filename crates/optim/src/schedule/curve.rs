use super::cycle::{Anneal, one_cycle, restarts, wave};
use crate::text::check;
use crate::{Progress, Result};

/// Whether a rate changes with every step or stays for an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// With every step.
    Step,
    /// Once an epoch.
    Epoch,
}

/// The course of the learning rate, as a factor of the base rate.
///
/// Curves that run from start to end do so over the run's epochs, or over their own `epochs`, and then stay
/// at their end. With `t` from 0 to 1 as the finished part:
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Curve {
    /// 1.
    #[default]
    Constant,
    /// `(1 - alpha) * (1 - t)^power + alpha`.
    ///
    /// Once an epoch and with `alpha` 0 this is the tutorial's `poly_decay`, `base * (1 - epoch / epochs)^power`, and
    /// PyTorch's `PolynomialLR`; per step it is Keras' `PolynomialDecay` with an end rate of `alpha * base`.
    Poly {
        /// The exponent; 1 is a straight line.
        power: f64,
        /// Where it ends.
        alpha: f64,
        /// How often it changes.
        per: Per,
        /// Its length, instead of the run's.
        epochs: Option<u64>,
    },
    /// `(1 - alpha) * (1 + cos(pi * t)) / 2 + alpha`: half a period of a cosine.
    ///
    /// Per step it is Keras' `CosineDecay`; once an epoch PyTorch's `CosineAnnealingLR` with `eta_min` at
    /// `alpha * base`. From I. Loshchilov, F. Hutter, "SGDR" (ICLR 2017), without restarts.
    Cosine {
        /// Where it ends.
        alpha: f64,
        /// How often it changes.
        per: Per,
        /// Its length, instead of the run's.
        epochs: Option<u64>,
    },
    /// Up in a straight line from `start` to 1, and down again to `end`: with every step, and at 1 with step `peak` of all
    /// steps, rounded down.
    ///
    /// The slanted triangle of J. Howard, S. Ruder, "Universal language model fine-tuning for text classification" (2018).
    /// The turns of [`Curve::OneCycle`] come a step earlier.
    Triangle {
        /// Where it begins.
        start: f64,
        /// The part of the steps that it rises for.
        peak: f64,
        /// Where it ends.
        end: f64,
        /// Its length, instead of the run's.
        epochs: Option<u64>,
    },
    /// Up from `1 / div_factor` to 1, and down to `1 / (div_factor * final_div_factor)` with the last step.
    ///
    /// PyTorch's `OneCycleLR`, with two phases and `cycle_momentum=False`: the base rate is its `max_lr`. After L. Smith,
    /// N. Topin, "Super-convergence" (2018).
    OneCycle {
        /// The part of the steps that it rises for.
        pct_start: f64,
        /// 1 over the factor at the start.
        div_factor: f64,
        /// The factor at the start over that at the end.
        final_div_factor: f64,
        /// The form of the rise and of the fall.
        anneal: Anneal,
        /// Its length, instead of the run's.
        epochs: Option<u64>,
    },
    /// `factor^(done / every)`, with the epochs or steps that are done.
    ///
    /// Once an epoch (`every` 1, `staircase`) it is PyTorch's `ExponentialLR`; counted in steps it is Keras'
    /// `ExponentialDecay`.
    Exponential {
        /// What is left after `every`.
        factor: f64,
        /// The time in which the rate falls to `factor`.
        every: u64,
        /// Whether `every` counts steps or epochs. In both cases the rate changes with every step.
        per: Per,
        /// Rounds the exponent down: the rate falls in jumps.
        staircase: bool,
    },
    /// [`Curve::Cosine`] again and again: the first for `first` epochs, each next one `t_mul` times as long and
    /// `m_mul` times as high: `(1 - alpha) * m_mul^restarts * (1 + cos(pi * t)) / 2 + alpha`.
    ///
    /// Per step it is Keras' `CosineDecayRestarts`; with `m_mul` 1 it is PyTorch's `CosineAnnealingWarmRestarts`. From
    /// I. Loshchilov, F. Hutter, "SGDR" (ICLR 2017).
    CosineRestarts {
        /// The length of the first cosine.
        first: u64,
        /// The length of a cosine over that of the one before.
        t_mul: f64,
        /// The height of a cosine over that of the one before.
        m_mul: f64,
        /// Where each ends.
        alpha: f64,
        /// How often it changes.
        per: Per,
    },
    /// `1 / (1 + decay * step)`, with the number of steps done before this one.
    ///
    /// The argument `decay` of Keras 2's optimizers, which read their counter before they increment it. Keras 3's
    /// `InverseTimeDecay` is the same for `decay = decay_rate / decay_steps`.
    Time {
        /// How fast it falls: after `1 / decay` steps the rate is half.
        decay: f64,
    },
    /// `factor^(epochs done / every)`, the quotient rounded down: PyTorch's `StepLR`.
    Step {
        /// The epochs between two drops.
        every: u64,
        /// What a drop leaves.
        factor: f64,
    },
    /// `factor^k` once `k` of the milestones are reached: PyTorch's `MultiStepLR`.
    Milestones {
        /// The numbers of epochs after which a new rate begins.
        at: Vec<u64>,
        /// What a drop leaves.
        factor: f64,
    },
}

impl Curve {
    /// [`Curve::Poly`] as in the tutorial: once an epoch, to 0.
    pub fn poly(power: f64) -> Self {
        Curve::Poly { power, alpha: 0.0, per: Per::Epoch, epochs: None }
    }

    /// [`Curve::Cosine`] with every step, to 0.
    pub fn cosine() -> Self {
        Curve::Cosine { alpha: 0.0, per: Per::Step, epochs: None }
    }

    /// [`Curve::Triangle`] from 0 to 1 within the first `peak` of all steps, and back to 0.
    pub fn triangle(peak: f64) -> Self {
        Curve::Triangle { start: 0.0, peak, end: 0.0, epochs: None }
    }

    /// [`Curve::OneCycle`] with PyTorch's defaults: from 1/25 within 30% of the steps to 1, and to 4e-6, by cosines.
    pub fn one_cycle() -> Self {
        let (pct_start, div_factor, final_div_factor) = (0.3, 25.0, 1e4);
        Curve::OneCycle { pct_start, div_factor, final_div_factor, anneal: Anneal::Cos, epochs: None }
    }

    /// [`Curve::Exponential`] to `factor` in each epoch, with every step.
    pub fn exponential(factor: f64) -> Self {
        Curve::Exponential { factor, every: 1, per: Per::Epoch, staircase: false }
    }

    /// [`Curve::CosineRestarts`] with Keras' defaults: with every step, to 0, each cosine twice as long as the one before.
    pub fn cosine_restarts(first: u64) -> Self {
        Curve::CosineRestarts { first, t_mul: 2.0, m_mul: 1.0, alpha: 0.0, per: Per::Step }
    }

    /// [`Curve::Time`].
    pub fn time(decay: f64) -> Self {
        Curve::Time { decay }
    }

    /// [`Curve::Step`] to a tenth.
    pub fn step(every: u64) -> Self {
        Curve::Step { every, factor: 0.1 }
    }

    /// [`Curve::Milestones`] to a tenth each.
    pub fn milestones(at: impl Into<Vec<u64>>) -> Self {
        Curve::Milestones { at: at.into(), factor: 0.1 }
    }

    /// The name in the compact form and in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Curve::Constant => "constant",
            Curve::Poly { .. } => "poly",
            Curve::Cosine { .. } => "cosine",
            Curve::Triangle { .. } => "triangle",
            Curve::OneCycle { .. } => "one-cycle",
            Curve::Exponential { .. } => "exponential",
            Curve::CosineRestarts { .. } => "cosine-restarts",
            Curve::Time { .. } => "time",
            Curve::Step { .. } => "step",
            Curve::Milestones { .. } => "milestones",
        }
    }

    /// What the base rate is multiplied with at `progress`.
    pub fn factor(&self, progress: &Progress) -> f64 {
        match *self {
            Curve::Constant => 1.0,
            Curve::Poly { power, alpha, per, epochs } => {
                let left = 1.0 - done(progress, per, epochs);
                (1.0 - alpha) * left.powf(power) + alpha
            }
            Curve::Cosine { alpha, per, epochs } => (1.0 - alpha) * wave(done(progress, per, epochs)) + alpha,
            Curve::Triangle { start, peak, end, epochs } => {
                let steps = epochs.unwrap_or(progress.epochs) as f64 * progress.steps_per_epoch as f64;
                let (step, top) = ((progress.step as f64).min(steps), (peak * steps).floor());
                if step < top {
                    let risen = step / top;
                    return start * (1.0 - risen) + risen;
                }
                let fallen = if top < steps { (step - top) / (steps - top) } else { 1.0 };
                (1.0 - fallen) + end * fallen
            }
            Curve::OneCycle { pct_start, div_factor, final_div_factor, anneal, epochs } => {
                let steps = epochs.unwrap_or(progress.epochs) as f64 * progress.steps_per_epoch as f64;
                let start = 1.0 / div_factor;
                one_cycle(progress.step as f64, steps, pct_start, [start, start / final_div_factor], anneal)
            }
            Curve::Exponential { factor, every, per, staircase } => {
                let exponent = match per {
                    Per::Epoch if staircase => progress.epochs_done as f64 / every as f64,
                    Per::Epoch => {
                        progress.step as f64 / (every as f64 * progress.steps_per_epoch.max(1) as f64)
                    }
                    Per::Step => progress.step as f64 / every as f64,
                };
                factor.powf(if staircase { exponent.floor() } else { exponent })
            }
            Curve::CosineRestarts { first, t_mul, m_mul, alpha, per } => {
                let (at, first) = match per {
                    Per::Epoch => (progress.epochs_done as f64, first as f64),
                    Per::Step => {
                        (progress.step as f64, first as f64 * progress.steps_per_epoch.max(1) as f64)
                    }
                };
                let (restart, part) = restarts(at, first, t_mul);
                (1.0 - alpha) * m_mul.powf(restart) * wave(part) + alpha
            }
            Curve::Time { decay } => 1.0 / (1.0 + decay * progress.step as f64),
            Curve::Step { every, factor } => {
                factor.powf(progress.epochs_done.checked_div(every).unwrap_or(0) as f64)
            }
            Curve::Milestones { ref at, factor } => {
                factor.powf(at.iter().filter(|&&epochs| epochs <= progress.epochs_done).count() as f64)
            }
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let of = self.name();
        let positive = |x: f64| (x.is_finite() && x > 0.0, "a positive number");
        let at_least_one = |x: f64| (x.is_finite() && x >= 1.0, "a number of 1 or more");
        let part = |x: f64| ((0.0..=1.0).contains(&x), "a number from 0 to 1");
        let some = |n: Option<u64>| (n != Some(0), "at least 1");
        match *self {
            Curve::Constant => Ok(()),
            Curve::Poly { power, alpha, epochs, .. } => {
                check(of, "power", power, positive(power))?;
                check(of, "alpha", alpha, part(alpha))?;
                check(of, "epochs", 0, some(epochs))
            }
            Curve::Cosine { alpha, epochs, .. } => {
                check(of, "alpha", alpha, part(alpha))?;
                check(of, "epochs", 0, some(epochs))
            }
            Curve::Triangle { start, peak, end, epochs } => {
                check(of, "start", start, part(start))?;
                check(of, "peak", peak, part(peak))?;
                check(of, "end", end, part(end))?;
                check(of, "epochs", 0, some(epochs))
            }
            Curve::OneCycle { pct_start, div_factor, final_div_factor, epochs, .. } => {
                check(of, "pct-start", pct_start, part(pct_start))?;
                check(of, "div-factor", div_factor, at_least_one(div_factor))?;
                check(of, "final-div-factor", final_div_factor, positive(final_div_factor))?;
                check(of, "epochs", 0, some(epochs))
            }
            Curve::Exponential { factor, every, per, .. } => {
                check(of, "factor", factor, positive(factor))?;
                let option = if per == Per::Step { "steps" } else { "every" };
                check(of, option, every, some(Some(every)))
            }
            Curve::CosineRestarts { first, t_mul, m_mul, alpha, .. } => {
                check(of, "first", first, some(Some(first)))?;
                check(of, "t-mul", t_mul, at_least_one(t_mul))?;
                check(of, "m-mul", m_mul, part(m_mul))?;
                check(of, "alpha", alpha, part(alpha))
            }
            Curve::Time { decay } => {
                check(of, "decay", decay, (decay.is_finite() && decay >= 0.0, "a number of 0 or more"))
            }
            Curve::Step { every, factor } => {
                check(of, "every", every, some(Some(every)))?;
                check(of, "factor", factor, positive(factor))
            }
            Curve::Milestones { ref at, factor } => {
                let rising = !at.is_empty() && at.windows(2).all(|pair| pair[0] < pair[1]);
                check(of, "at", slashed(at), (rising, "rising epochs such as 30/60/80"))?;
                check(of, "factor", factor, positive(factor))
            }
        }
    }
}

/// The part of a curve over `epochs`, or the whole run, that is done: from 0 to 1.
fn done(progress: &Progress, per: Per, epochs: Option<u64>) -> f64 {
    let epochs = epochs.unwrap_or(progress.epochs) as f64;
    let (at, end) = match per {
        Per::Epoch => (progress.epochs_done as f64, epochs),
        Per::Step => (progress.step as f64, epochs * progress.steps_per_epoch as f64),
    };
    if at < end { at / end } else { 1.0 }
}

/// Epochs as the compact form lists them: `30/60/80`.
pub(super) fn slashed(epochs: &[u64]) -> String {
    epochs.iter().map(u64::to_string).collect::<Vec<_>>().join("/")
}
