mod rest;
mod text;

pub use rest::Rest;
pub(crate) use text::{read_weight_decay, write_weight_decay};

use crate::text::check;
use crate::{Clip, Error, Result, UpdateRule};

/// How parameters follow their gradients: the rule and its constants, without the learning rate.
///
/// # Compact form
/// [`FromStr`](core::str::FromStr) reads and [`Display`](core::fmt::Display) writes `NAME[:OPTION=VALUE,...]`:
///
/// | name | options, with defaults |
/// | --- | --- |
/// | `sgd` | `momentum=0`, `nesterov=false`, `velocity=keras` or `pytorch` |
/// | `rmsprop` | `style=keras2`, `keras3` or `pytorch`, whose defaults hold for `rho`, `epsilon`, `epsilon-inside-root` |
/// | `adam` | `style=keras` or `pytorch`, whose defaults hold for `epsilon`, `epsilon-hat`; `beta1=0.9`, `beta2=0.999` |
/// | `adamw` | those of `adam`, and where no other is given a `weight-decay` of 0.004 (`keras`) or 0.01 (`pytorch`) |
/// | `nadam` | `style=keras` or `pytorch`, whose defaults hold for `epsilon`, `momentum-decay`; `beta1=0.9`, `beta2=0.999` |
/// | `lion` | `beta1=0.9`, `beta2=0.99` |
/// | `lars` | `momentum=0`, `nesterov=false`, `trust=0.001`, `epsilon=1e-8`; it needs a weight decay |
/// | `lamb` | `beta1=0.9`, `beta2=0.999`, `epsilon=1e-6`; it needs a weight decay |
/// | `muon` | `momentum=0.95`, `nesterov=true`, `steps=5`, `epsilon=1e-7`, `adjust=original`, `match-rms-adamw`, `spectral-unclamped` or `none`, `normalize=false`; then `+` and the [rule of the rest](Rest), with `lr-multiplier=1` |
/// | all | `clipnorm`, `clipvalue` or `global-clipnorm`: see [`Clip`] |
/// | all | `weight-decay` ([decoupled](crate::WeightDecay::Decoupled)) or `l2` ([coupled](crate::WeightDecay::Coupled), PyTorch's `weight_decay`) |
///
/// ```
/// use towers_optim::{Adam, Optimizer, Rest, Rmsprop, Sgd, WeightDecay};
///
/// let sgd: Optimizer = "sgd:momentum=0.9,nesterov".parse()?;
/// assert_eq!(sgd, Sgd::keras().momentum(0.9).nesterov().into());
///
/// let rmsprop: Optimizer = "rmsprop:style=keras3,rho=0.95".parse()?;
/// assert_eq!(rmsprop, Rmsprop::keras3().rho(0.95).into());
///
/// let adamw: Optimizer = "adamw:style=pytorch".parse()?;
/// assert_eq!(adamw, Adam::pytorch().weight_decay(WeightDecay::Decoupled(0.01)).into());
///
/// let muon: Optimizer = "muon:weight-decay=0.1+adamw:style=pytorch,lr-multiplier=0.02".parse()?;
/// assert_eq!(muon.rest.unwrap(), Rest::from(adamw.rule).lr_multiplier(0.02));
/// assert_eq!("muon".parse::<Optimizer>()?.to_string(), "muon+adam:beta2=0.95,epsilon=1e-10,epsilon-hat=false,lr-multiplier=0.015");
/// # Ok::<(), towers_optim::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    /// The rule and its constants.
    pub rule: UpdateRule,
    /// The rule of the parameters that [`Muon`](crate::Muon) leaves alone; no other rule has one.
    pub rest: Option<Rest>,
    /// How gradients are clipped before, if at all.
    pub clip: Option<Clip>,
}

impl Optimizer {
    /// The same with gradients that are clipped before.
    pub fn clip(self, clip: Clip) -> Self {
        Optimizer { clip: Some(clip), ..self }
    }

    /// The same with another rule for the parameters that [`Muon`](crate::Muon) leaves alone.
    pub fn rest(self, rest: impl Into<Rest>) -> Self {
        Optimizer { rest: Some(rest.into()), ..self }
    }

    /// The rules: that of the optimizer, and that of the rest if there is one.
    pub fn rules(&self) -> impl Iterator<Item = UpdateRule> {
        [Some(self.rule), self.rest.map(|rest| rest.rule)].into_iter().flatten()
    }

    /// Checks the options. Parsing does so by itself.
    ///
    /// # Errors
    /// Names the first option that is outside of its domain.
    pub fn validate(&self) -> Result<()> {
        self.clip.map_or(Ok(()), |clip| {
            let limit = clip.limit();
            let accepted = (limit.is_finite() && limit > 0.0, "a positive number");
            check(self.rule.name(), clip.name(), limit, accepted)
        })?;
        self.rule.validate()?;
        let is_muon = matches!(self.rule, UpdateRule::Muon(_));
        match self.rest {
            Some(rest) if is_muon => rest.validate(),
            None if !is_muon => Ok(()),
            rest => Err(Error::Rest { name: self.rule.name(), rest: rest.map(|rest| rest.rule.name()) }),
        }
    }

    /// A learning rate in f32, in which steps compute.
    ///
    /// # Errors
    /// [`Error::LearningRate`] if it is not a finite number of 0 or more.
    pub fn rate(lr: f64) -> Result<f32> {
        let rate = lr as f32;
        if rate.is_finite() && rate >= 0.0 { Ok(rate) } else { Err(Error::LearningRate { lr }) }
    }
}

impl<R: Into<UpdateRule>> From<R> for Optimizer {
    fn from(rule: R) -> Self {
        let rule = rule.into();
        let rest = if let UpdateRule::Muon(muon) = &rule { Some(Rest::of(muon)) } else { None };
        Optimizer { rule, rest, clip: None }
    }
}
