mod curve;
mod cycle;
mod scaling;
mod text;
mod warmup;

pub use curve::{Curve, Per};
pub use cycle::Anneal;
pub use scaling::LinearScaling;
pub use warmup::Warmup;

use crate::{Progress, Result};

/// How the learning rate changes over a run: a pure function of where the run stands.
///
/// The rate is the base rate times the [`Curve`]'s factor times the [`Warmup`]'s. It has no state, so a
/// resumed run has exactly the rates of an uninterrupted one.
///
/// Rates are computed in f64 and rounded to f32 once, by the step that uses them. PyTorch does the same, and
/// so does a function given to Keras' `LearningRateScheduler`. Keras' own schedules and Keras 2's `decay` compute in f32:
/// their rates differ from these by up to about one part in ten million.
///
/// # Compact form
/// [`FromStr`](core::str::FromStr) reads and [`Display`](core::fmt::Display) writes
/// `CURVE[:OPTION=VALUE,...]`, optionally followed by `+warmup:OPTION=VALUE,...`:
///
/// | form | options, with defaults | [`Curve`] |
/// | --- | --- | --- |
/// | `constant` | | [`Constant`](Curve::Constant) |
/// | `poly` | `power=1`, `alpha=0`, `per=epoch`, `epochs` | [`Poly`](Curve::Poly) |
/// | `cosine` | `alpha=0`, `per=step`, `epochs` | [`Cosine`](Curve::Cosine) |
/// | `triangle` | `start=0`, `peak=0.5`, `end=0`, `epochs` | [`Triangle`](Curve::Triangle) |
/// | `one-cycle` | `pct-start=0.3`, `div-factor=25`, `final-div-factor=1e4`, `anneal=cos`, `epochs` | [`OneCycle`](Curve::OneCycle) |
/// | `exponential` | `factor` (required), `every=1` epochs or `steps`, `staircase` | [`Exponential`](Curve::Exponential) |
/// | `cosine-restarts` | `first` (required), `t-mul=2`, `m-mul=1`, `alpha=0`, `per=step` | [`CosineRestarts`](Curve::CosineRestarts) |
/// | `time` | `decay` (required) | [`Time`](Curve::Time) |
/// | `step` | `every` (required), `factor=0.1` | [`Step`](Curve::Step) |
/// | `milestones` | `at=30/60/80` (required), `factor=0.1` | [`Milestones`](Curve::Milestones) |
/// | `...+warmup` | `epochs` or `steps` (required), `start=0` | [`Warmup`] |
///
/// ```
/// use towers_optim::{Progress, Schedule};
///
/// // The MiniGoogLeNet tutorial: from 0.01 in a straight line to 0 within 70 epochs.
/// let poly: Schedule = "poly".parse()?;
/// assert_eq!(poly.lr(0.01, &Progress::at_step(0, 391, 70)), 0.01);
/// assert_eq!(poly.lr(0.01, &Progress::at_step(35 * 391, 391, 70)), 0.005);
///
/// let cosine: Schedule = "cosine:alpha=0.01+warmup:epochs=5".parse()?;
/// assert_eq!(cosine.lr(0.1, &Progress::at_step(0, 391, 70)), 0.0);
/// assert_eq!(cosine.to_string(), "cosine:alpha=0.01+warmup:epochs=5");
///
/// let error = "poly:pow=2".parse::<Schedule>().unwrap_err();
/// assert_eq!(error.to_string(), "poly: option `pow` is unknown; there are power, alpha, per, epochs");
/// # Ok::<(), towers_optim::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// What the rate does over the run.
    pub curve: Curve,
    /// What it does before it reaches the curve.
    pub warmup: Option<Warmup>,
}

impl Schedule {
    /// The schedule with a warm-up in front.
    ///
    /// ```
    /// use towers_optim::{Curve, Schedule, Warmup};
    ///
    /// let schedule = Schedule::from(Curve::cosine()).with_warmup(Warmup::epochs(5));
    /// assert_eq!(schedule.to_string(), "cosine+warmup:epochs=5");
    /// ```
    pub fn with_warmup(self, warmup: Warmup) -> Self {
        Schedule { warmup: Some(warmup), ..self }
    }

    /// The schedule whose curve runs over this many epochs, whatever the run has, if it ran over those of the run.
    ///
    /// ```
    /// use towers_optim::Schedule;
    ///
    /// let over = |text: &str| text.parse::<Schedule>().map(|schedule| schedule.over(4).to_string());
    /// assert_eq!(over("poly")?, "poly:epochs=4");
    /// assert_eq!(over("cosine:epochs=3")?, "cosine:epochs=3");
    /// # Ok::<(), towers_optim::Error>(())
    /// ```
    #[must_use]
    pub fn over(mut self, run: u64) -> Self {
        match &mut self.curve {
            Curve::Poly { epochs, .. }
            | Curve::Cosine { epochs, .. }
            | Curve::Triangle { epochs, .. }
            | Curve::OneCycle { epochs, .. } => {
                epochs.get_or_insert(run);
            }
            Curve::Constant
            | Curve::Exponential { .. }
            | Curve::CosineRestarts { .. }
            | Curve::Time { .. }
            | Curve::Step { .. }
            | Curve::Milestones { .. } => {}
        }
        self
    }

    /// The learning rate of the step at `progress`, for the base rate `base`.
    pub fn lr(&self, base: f64, progress: &Progress) -> f64 {
        base * self.factor(progress)
    }

    /// What the base rate is multiplied with at `progress`.
    pub fn factor(&self, progress: &Progress) -> f64 {
        self.curve.factor(progress) * self.warmup.map_or(1.0, |warmup| warmup.factor(progress))
    }

    /// Checks the options. Parsing and deserializing do so by themselves; a value that was built should be
    /// checked once.
    ///
    /// # Errors
    /// Names the first option that is outside of its domain.
    pub fn validate(&self) -> Result<()> {
        self.curve.validate()?;
        self.warmup.map_or(Ok(()), |warmup| warmup.validate())
    }
}

impl From<Curve> for Schedule {
    fn from(curve: Curve) -> Self {
        Schedule { curve, warmup: None }
    }
}
