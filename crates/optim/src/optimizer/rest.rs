use super::text::{read_rule, write_rule};
use crate::number::Number;
use crate::text::{NUMBER, Writer, check, parse};
use crate::{Adam, Adjust, Error, Muon, Result, UpdateRule};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

/// The rule of the parameters that [`Muon`] leaves alone, such as biases, normalizations and the last layer.
///
/// # Compact form
/// As that of a rule, with the option `lr-multiplier`: `adamw:weight-decay=0.01,lr-multiplier=0.015`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// The rule and its constants.
    pub rule: UpdateRule,
    /// The factor of the learning rate.
    pub lr_multiplier: f32,
}

impl Rest {
    /// K. Jordan's `MuonWithAuxAdam`: Adam with a beta2 of 0.95 and an epsilon of 1e-10, at a rate of 3e-4 where Muon's is 0.02;
    /// but at Muon's own where that [is AdamW's](Adjust::MatchRmsAdamw).
    pub fn of(muon: &Muon) -> Self {
        let lr_multiplier = if muon.adjust == Adjust::MatchRmsAdamw { 1.0 } else { 0.015 };
        Rest { rule: Adam::pytorch().betas(0.9, 0.95).epsilon(1e-10).into(), lr_multiplier }
    }

    /// The same at another multiple of the rate.
    pub fn lr_multiplier(self, lr_multiplier: f32) -> Self {
        Rest { lr_multiplier, ..self }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let multiplier = self.lr_multiplier;
        let accepted = (multiplier.is_finite() && multiplier >= 0.0, "a number of 0 or more");
        check(self.rule.name(), "lr-multiplier", multiplier, accepted)?;
        let is_other = !matches!(self.rule, UpdateRule::Muon(_));
        check("muon", "the rest's rule", self.rule.name(), (is_other, "another than muon"))?;
        self.rule.validate()
    }
}

impl<R: Into<UpdateRule>> From<R> for Rest {
    fn from(rule: R) -> Self {
        Rest { rule: rule.into(), lr_multiplier: 1.0 }
    }
}

impl FromStr for Rest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, mut options) = parse(text)?;
        let rule = read_rule(name, &mut options)?;
        let rest = Rest { rule, lr_multiplier: options.or("lr-multiplier", NUMBER, 1.0)? };
        options.finish()?;
        rest.validate()?;
        Ok(rest)
    }
}

impl Display for Rest {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::new(f, self.rule.name())?;
        write_rule(&mut out, &self.rule)?;
        out.unless_default("lr-multiplier", Number(self.lr_multiplier), Number(1.0))
    }
}
