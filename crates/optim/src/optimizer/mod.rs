mod text;

pub(crate) use text::{read_weight_decay, write_weight_decay};

use crate::Result;
use crate::text::check;
use program::{Adam, Rmsprop, Sgd, WeightDecay};
use serde::{Deserialize, Serialize};

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
/// | all | `weight-decay` ([decoupled](WeightDecay::Decoupled)) or `l2` ([coupled](WeightDecay::Coupled), PyTorch's `weight_decay`) |
///
/// ```
/// use optim::{Adam, Optimizer, Rmsprop, Sgd, WeightDecay};
///
/// let sgd: Optimizer = "sgd:momentum=0.9,nesterov".parse()?;
/// assert_eq!(sgd, Sgd::keras().momentum(0.9).nesterov().into());
///
/// let rmsprop: Optimizer = "rmsprop:style=keras3,rho=0.95".parse()?;
/// assert_eq!(rmsprop, Rmsprop::keras3().rho(0.95).into());
///
/// let adamw: Optimizer = "adamw:style=pytorch".parse()?;
/// assert_eq!(adamw, Adam::pytorch().weight_decay(WeightDecay::Decoupled(0.01)).into());
/// # Ok::<(), optim::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Optimizer {
    /// Stochastic gradient descent with momentum.
    Sgd(Sgd),
    /// RMSprop.
    Rmsprop(Rmsprop),
    /// Adam, and with a decoupled weight decay AdamW.
    Adam(Adam),
}

impl Optimizer {
    /// The name in the compact form.
    pub fn name(&self) -> &'static str {
        match self {
            Optimizer::Sgd(_) => "sgd",
            Optimizer::Rmsprop(_) => "rmsprop",
            Optimizer::Adam(_) => "adam",
        }
    }

    /// The weight decay.
    pub fn weight_decay(&self) -> WeightDecay {
        match self {
            Optimizer::Sgd(sgd) => sgd.weight_decay,
            Optimizer::Rmsprop(rmsprop) => rmsprop.weight_decay,
            Optimizer::Adam(adam) => adam.weight_decay,
        }
    }

    /// Checks the options. Parsing does so by itself, and so does [`OptimizerState::new`](crate::OptimizerState::new).
    ///
    /// # Errors
    /// Names the first option that is outside of its domain.
    pub fn validate(&self) -> Result<()> {
        let name = self.name();
        let epsilon = match self {
            Optimizer::Sgd(sgd) => {
                check(name, "momentum", sgd.momentum, fading(sgd.momentum))?;
                None
            }
            Optimizer::Rmsprop(rmsprop) => {
                check(name, "rho", rmsprop.rho, fading(rmsprop.rho))?;
                Some(rmsprop.epsilon)
            }
            Optimizer::Adam(adam) => {
                check(name, "beta1", adam.beta1, fading(adam.beta1))?;
                check(name, "beta2", adam.beta2, fading(adam.beta2))?;
                Some(adam.epsilon)
            }
        };
        if let Some(epsilon) = epsilon {
            check(name, "epsilon", epsilon, (epsilon.is_finite() && epsilon > 0.0, "a positive number"))?;
        }
        check_weight_decay(name, self.weight_decay())
    }
}

impl From<Sgd> for Optimizer {
    fn from(sgd: Sgd) -> Self {
        Optimizer::Sgd(sgd)
    }
}

impl From<Rmsprop> for Optimizer {
    fn from(rmsprop: Rmsprop) -> Self {
        Optimizer::Rmsprop(rmsprop)
    }
}

impl From<Adam> for Optimizer {
    fn from(adam: Adam) -> Self {
        Optimizer::Adam(adam)
    }
}

/// Momentum, rho and betas: an average must forget.
pub(crate) fn fading(x: impl Into<f64>) -> (bool, &'static str) {
    ((0.0..1.0).contains(&x.into()), "a number from 0 to below 1")
}

pub(crate) fn check_weight_decay(of: &str, decay: WeightDecay) -> Result<()> {
    let (WeightDecay::Coupled(w) | WeightDecay::Decoupled(w)) = decay else { return Ok(()) };
    check(of, "weight-decay", w, (w.is_finite() && w >= 0.0, "a number of 0 or more"))
}
