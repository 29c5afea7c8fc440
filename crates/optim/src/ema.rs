use crate::number::Number;
use crate::text::{Writer, check, parse};
use crate::{Error, Progress, Result};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

/// A moving average of the weights: `average = m * average + (1 - m) * weight`, from the first weights on.
///
/// | | options | known as |
/// | --- | --- | --- |
/// | after every step, and instead of the weights after the last one | the defaults | Keras' `use_ema`, Polyak averaging |
/// | the same, and instead of the weights after every 100 steps | `overwrite-frequency=100` | `ema_overwrite_frequency` |
/// | every 5 steps, and each time instead of the weights | `every=5,overwrite-frequency=5` | Lookahead, whose `alpha` is `1 - m` |
///
/// Lookahead is that of M. Zhang et al., "Lookahead optimizer: k steps forward, 1 step back" (2019).
///
/// # Compact form
/// [`FromStr`] reads and [`Display`] writes `OPTION=VALUE,...`, with the names of the fields.
///
/// ```
/// use towers_optim::{Ema, Progress};
///
/// let ema: Ema = "momentum=0.95,every=5,power=3,overwrite-frequency=5".parse()?;
/// let at = |step| ema.momentum_after(&Progress::at_step(step, 10, 2)).map(|momentum| momentum as f32);
/// assert_eq!((at(4), at(10), at(20)), (None, Some(0.09672262), Some(0.77378094)));
/// # Ok::<(), towers_optim::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// The share of the average that one step keeps (default 0.99, Keras' `ema_momentum`). If it moves every
    /// 5 steps, it keeps the fifth power of this each time.
    pub momentum: f64,
    /// It moves every so many steps (default 1).
    pub every: u64,
    /// The momentum grows over the run as `(steps done / all steps)^power`; 0 (default) for one that stays.
    pub power: f64,
    /// The average replaces the weights after every so many steps, and after the last one. A run that ends
    /// earlier, as by early stopping, must do that itself.
    pub overwrite_frequency: Option<u64>,
}

impl Default for Ema {
    fn default() -> Self {
        Ema { momentum: 0.99, every: 1, power: 0.0, overwrite_frequency: None }
    }
}

impl Ema {
    /// The share of the average that step `steps` keeps. `None` if it doesn't move.
    pub fn momentum_after(&self, done: &Progress) -> Option<f64> {
        if !done.step.is_multiple_of(self.every) {
            return None;
        }
        let part = done.step as f64 / (done.steps_per_epoch as f64 * done.epochs as f64);
        Some(self.momentum.powf(self.every as f64) * part.powf(self.power))
    }

    /// Whether the average replaces the weights after this number of steps.
    pub fn overwrites_after(&self, done: &Progress) -> bool {
        let due = self.overwrite_frequency.is_some_and(|steps| done.step.is_multiple_of(steps));
        due || done.step == done.steps_per_epoch.saturating_mul(done.epochs)
    }

    /// Checks the options. Parsing does so by itself.
    ///
    /// # Errors
    /// Names the first option that is outside of its domain.
    pub fn validate(&self) -> Result<()> {
        let Ema { momentum, every, power, overwrite_frequency } = *self;
        check("ema", "momentum", momentum, crate::rule::fading(momentum))?;
        check("ema", "every", every, (every > 0, "at least 1"))?;
        check("ema", "power", power, (power.is_finite() && power >= 0.0, "a number of 0 or more"))?;
        check("ema", "overwrite-frequency", 0, (overwrite_frequency != Some(0), "at least 1"))
    }
}

impl FromStr for Ema {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = format!("ema:{text}");
        let (_, mut options) = parse(&text)?;
        let default = Ema::default();
        let ema = Ema {
            momentum: options.or("momentum", "a number", default.momentum)?,
            every: options.or("every", "a whole number", default.every)?,
            power: options.or("power", "a number", default.power)?,
            overwrite_frequency: options.get("overwrite-frequency", "a whole number")?,
        };
        options.finish()?;
        ema.validate()?;
        Ok(ema)
    }
}

impl Display for Ema {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::bare(f);
        out.option("momentum", Number(self.momentum))?;
        out.unless_default("every", self.every, 1)?;
        out.unless_default("power", Number(self.power), Number(0.0))?;
        self.overwrite_frequency.map_or(Ok(()), |steps| out.option("overwrite-frequency", steps))
    }
}
