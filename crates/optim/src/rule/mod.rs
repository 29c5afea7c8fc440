mod adam;
mod rmsprop;
mod sgd;
mod weight_decay;

pub use adam::Adam;
pub use rmsprop::Rmsprop;
pub use sgd::{Sgd, Velocity};
pub use weight_decay::WeightDecay;

use crate::Result;
use crate::text::check;

/// A rule by which parameters follow their gradients: the name, the constants, and the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// Stochastic gradient descent with momentum.
    Sgd(Sgd),
    /// RMSprop.
    Rmsprop(Rmsprop),
    /// Adam, and with a decoupled weight decay AdamW.
    Adam(Adam),
}

impl UpdateRule {
    /// All names of [`state`](UpdateRule::state).
    pub const STATES: [&str; 3] = ["velocity", "mean", "mean_square"];

    /// The name in the compact form of an [`Optimizer`](crate::Optimizer).
    pub fn name(&self) -> &'static str {
        match self {
            UpdateRule::Sgd(_) => "sgd",
            UpdateRule::Rmsprop(_) => "rmsprop",
            UpdateRule::Adam(_) => "adam",
        }
    }

    /// The names of the numbers that it keeps for each parameter: at most two, which start at 0. SGD without momentum
    /// keeps none.
    pub fn state(&self) -> &'static [&'static str] {
        match self {
            UpdateRule::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            UpdateRule::Sgd(_) => &["velocity"],
            UpdateRule::Rmsprop(_) => &["mean_square"],
            UpdateRule::Adam(_) => &["mean", "mean_square"],
        }
    }

    /// Whether a step depends on how many were taken before it.
    pub fn counts_steps(&self) -> bool {
        matches!(self, UpdateRule::Adam(_))
    }

    /// How many arrays a device keeps: one for each name of [`state`](UpdateRule::state), and one for the number of steps if they
    /// are [counted](UpdateRule::counts_steps).
    pub fn arrays(&self) -> usize {
        self.state().len() + usize::from(self.counts_steps())
    }

    /// The weight decay.
    pub fn weight_decay(&self) -> WeightDecay {
        match self {
            UpdateRule::Sgd(sgd) => sgd.weight_decay,
            UpdateRule::Rmsprop(rmsprop) => rmsprop.weight_decay,
            UpdateRule::Adam(adam) => adam.weight_decay,
        }
    }

    /// The same with another weight decay.
    pub fn with_weight_decay(self, decay: WeightDecay) -> Self {
        match self {
            UpdateRule::Sgd(sgd) => sgd.weight_decay(decay).into(),
            UpdateRule::Rmsprop(rmsprop) => rmsprop.weight_decay(decay).into(),
            UpdateRule::Adam(adam) => adam.weight_decay(decay).into(),
        }
    }

    /// The `t`-th step, counted from 1, at learning rate `lr`, in place. `state` is what [`state`](UpdateRule::state)
    /// names, in that order; slices without a name may be empty.
    ///
    /// The loop takes on the instruction set of the function that calls it.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline(always)]
    pub fn step(&self, lr: f32, t: u64, params: &mut [f32], grads: &[f32], state: [&mut [f32]; 2]) {
        let [first, second] = state;
        match self {
            UpdateRule::Sgd(sgd) => sgd.step(lr, params, grads, first),
            UpdateRule::Rmsprop(rmsprop) => rmsprop.step(lr, params, grads, first),
            UpdateRule::Adam(adam) => adam.step(lr, t, params, grads, first, second),
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let name = self.name();
        let epsilon = match self {
            UpdateRule::Sgd(sgd) => {
                check(name, "momentum", sgd.momentum, fading(sgd.momentum))?;
                None
            }
            UpdateRule::Rmsprop(rmsprop) => {
                check(name, "rho", rmsprop.rho, fading(rmsprop.rho))?;
                Some(rmsprop.epsilon)
            }
            UpdateRule::Adam(adam) => {
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

impl From<Sgd> for UpdateRule {
    fn from(sgd: Sgd) -> Self {
        UpdateRule::Sgd(sgd)
    }
}

impl From<Rmsprop> for UpdateRule {
    fn from(rmsprop: Rmsprop) -> Self {
        UpdateRule::Rmsprop(rmsprop)
    }
}

impl From<Adam> for UpdateRule {
    fn from(adam: Adam) -> Self {
        UpdateRule::Adam(adam)
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

/// Every slice has a number for each parameter.
#[inline(always)]
fn check_lengths<const N: usize>(params: &[f32], others: [&[f32]; N]) {
    for other in others {
        assert_eq!(other.len(), params.len(), "gradients and state have as many numbers as the parameters");
    }
}
