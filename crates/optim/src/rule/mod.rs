mod adam;
mod lamb;
mod lars;
mod lion;
mod muon;
mod nadam;
mod rmsprop;
mod sgd;
mod weight_decay;

pub use adam::Adam;
pub use lamb::Lamb;
pub use lars::Lars;
pub use lion::Lion;
pub use muon::{Adjust, Form, Muon};
pub use nadam::Nadam;
pub use rmsprop::Rmsprop;
pub use sgd::{Sgd, Velocity};
pub use weight_decay::WeightDecay;

use crate::text::{Options, Writer, check};
use crate::{Error, Result};
use core::fmt;

/// What the file of a rule says of it. A new rule is such a file, a line of `rules!`, its step in f64 in the reference backend,
/// and a kernel for GPUs.
trait Rule: Copy {
    /// See [`UpdateRule::counts_steps`].
    const COUNTS_STEPS: bool;

    /// See [`UpdateRule::of_tensors`]. Such a rule has `measure`, `ratio` and `scaled_step`, but for Muon; the others have `step_over`.
    const OF_TENSORS: bool = false;

    /// See [`UpdateRule::state`].
    fn state(&self) -> &'static [&'static str];

    /// See [`UpdateRule::step`].
    #[inline(always)]
    fn step_over(
        &self,
        lr: f32,
        t: u64,
        params: &mut [f32],
        grads: &[f32],
        [first, second]: [&mut [f32]; 2],
    ) {
        let squares = self.measure(t, params, grads, [first, second]);
        self.scaled_step(lr, t, self.ratio(squares), params, grads, [first, second]);
    }

    /// See [`UpdateRule::measure`].
    #[inline(always)]
    fn measure(&self, _: u64, _: &[f32], _: &[f32], _: [&mut [f32]; 2]) -> [f64; 2] {
        [0.0; 2]
    }

    /// See [`UpdateRule::trust_ratio`].
    fn ratio(&self, _: [f64; 2]) -> f32 {
        1.0
    }

    /// See [`UpdateRule::scaled_step`].
    #[inline(always)]
    fn scaled_step(
        &self,
        lr: f32,
        t: u64,
        _: f32,
        params: &mut [f32],
        grads: &[f32],
        state: [&mut [f32]; 2],
    ) {
        self.step_over(lr, t, params, grads, state);
    }

    /// See [`UpdateRule::constants`].
    fn constants(&self) -> Vec<f32>;

    /// The rule of one of its names with these options, but for the weight decay, which replaces the one returned.
    fn read(name: &str, options: &mut Options) -> Result<Self>;

    /// The options, but for the weight decay.
    fn write(&self, out: &mut Writer) -> fmt::Result;

    /// Checks all but the weight decay.
    fn validate(&self) -> Result<()>;
}

/// `Rule "name", "other name"`: its variant, and all that only goes to the rule.
macro_rules! rules {
    ($($(#[$doc:meta])* $Rule:ident $name:literal $(, $alias:literal)*;)+) => {
        /// A rule by which parameters follow their gradients: the name, the constants, and the loop.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UpdateRule {
            $($(#[$doc])* $Rule($Rule),)+
        }

        $(impl From<$Rule> for UpdateRule {
            fn from(rule: $Rule) -> Self {
                UpdateRule::$Rule(rule)
            }
        })+

        impl UpdateRule {
            /// The functions of a device that take a rule's step: `step_` and the [`name`](UpdateRule::name), in no order.
            pub const STEPS: &[&str] = &[$(concat!("step_", $name)),+];

            /// The name in the compact form of an [`Optimizer`](crate::Optimizer).
            pub fn name(&self) -> &'static str {
                match self {
                    $(UpdateRule::$Rule(_) => $name,)+
                }
            }

            /// The one of [`STEPS`](UpdateRule::STEPS) that is this rule's.
            pub fn step_name(&self) -> &'static str {
                match self {
                    $(UpdateRule::$Rule(_) => concat!("step_", $name),)+
                }
            }

            /// The names of the numbers that it keeps for each parameter: at most two, which start at 0. SGD without momentum
            /// keeps none.
            pub fn state(&self) -> &'static [&'static str] {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.state(),)+
                }
            }

            /// Whether a step depends on how many were taken before it.
            pub fn counts_steps(&self) -> bool {
                match self {
                    $(UpdateRule::$Rule(_) => $Rule::COUNTS_STEPS,)+
                }
            }

            /// Whether a step depends on norms of the whole parameter tensor. It is then two passes over the tensor, which
            /// may be taken in parts: [`measure`](UpdateRule::measure) and [`scaled_step`](UpdateRule::scaled_step).
            pub fn of_tensors(&self) -> bool {
                match self {
                    $(UpdateRule::$Rule(_) => $Rule::OF_TENSORS,)+
                }
            }

            /// The function of a device that takes [`measure`](UpdateRule::measure), for a rule
            /// [of tensors](UpdateRule::of_tensors): one of [`MEASURES`](UpdateRule::MEASURES).
            pub fn measure_name(&self) -> &'static str {
                match self {
                    $(UpdateRule::$Rule(_) => concat!("measure_", $name),)+
                }
            }

            /// The first pass of the `t`-th step: updates averages of gradients, and returns the sums of the squares that the
            /// [trust ratio](UpdateRule::trust_ratio) needs. Those of all parts of a tensor are added.
            #[inline(always)]
            pub fn measure(&self, t: u64, params: &[f32], grads: &[f32], state: [&mut [f32]; 2]) -> [f64; 2] {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.measure(t, params, grads, state),)+
                }
            }

            /// The factor of a tensor's step; 1 for rules that are not [of tensors](UpdateRule::of_tensors).
            pub fn trust_ratio(&self, squares: [f64; 2]) -> f32 {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.ratio(squares),)+
                }
            }

            /// The second pass of the `t`-th step, or for other rules the whole [`step`](UpdateRule::step).
            ///
            /// # Panics
            /// If the slices differ in length.
            #[inline(always)]
            pub fn scaled_step(
                &self,
                lr: f32,
                t: u64,
                ratio: f32,
                params: &mut [f32],
                grads: &[f32],
                state: [&mut [f32]; 2],
            ) {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.scaled_step(lr, t, ratio, params, grads, state),)+
                }
            }

            /// The constants of a step without the weight decay, as [`step_name`](UpdateRule::step_name)'s function takes them.
            pub fn constants(&self) -> Vec<f32> {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.constants(),)+
                }
            }

            /// The weight decay.
            pub fn weight_decay(&self) -> WeightDecay {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.weight_decay,)+
                }
            }

            /// The same with another weight decay.
            pub fn with_weight_decay(self, decay: WeightDecay) -> Self {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.weight_decay(decay).into(),)+
                }
            }

            /// The `t`-th step, counted from 1, at learning rate `lr`, in place. `state` is what [`state`](UpdateRule::state)
            /// names, in that order; slices without a name may be empty. A rule [of tensors](UpdateRule::of_tensors) takes the
            /// slices as one tensor.
            ///
            /// The loop takes on the instruction set of the function that calls it.
            ///
            /// # Panics
            /// If the slices differ in length.
            #[inline(always)]
            pub fn step(&self, lr: f32, t: u64, params: &mut [f32], grads: &[f32], state: [&mut [f32]; 2]) {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.step_over(lr, t, params, grads, state),)+
                }
            }

            /// The rule of this name, without a weight decay if that is not its default.
            pub(crate) fn read(name: &str, options: &mut Options) -> Result<Self> {
                match name {
                    $($name $(| $alias)* => Ok($Rule::read(name, options)?.into()),)+
                    _ => {
                        let accepted = &concat!($(", ", $name $(, ", ", $alias)*),+)[2..];
                        Err(Error::UnknownName { what: "the optimizer", name: name.into(), accepted })
                    }
                }
            }

            pub(crate) fn write(&self, out: &mut Writer) -> fmt::Result {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.write(out),)+
                }
            }

            pub(crate) fn validate(&self) -> Result<()> {
                match self {
                    $(UpdateRule::$Rule(rule) => rule.validate()?,)+
                }
                check_weight_decay(self.name(), self.weight_decay())
            }
        }
    };
}

rules! {
    /// Stochastic gradient descent with momentum.
    Sgd "sgd";
    /// RMSprop.
    Rmsprop "rmsprop";
    /// Adam, and with a decoupled weight decay AdamW.
    Adam "adam", "adamw";
    /// Adam with Nesterov's momentum.
    Nadam "nadam";
    /// Lion, which steps by signs.
    Lion "lion";
    /// LARS, SGD with a trust ratio for each tensor.
    Lars "lars";
    /// LAMB, Adam with a trust ratio for each tensor.
    Lamb "lamb";
    /// Muon, SGD with orthogonal steps of matrices; a plain slice, which has no shape, is a matrix of one output.
    Muon "muon";
}

impl UpdateRule {
    /// The functions of a device that take the first pass of a rule [of tensors](UpdateRule::of_tensors).
    pub const MEASURES: &[&str] = &["measure_lars", "measure_lamb", "measure_muon"];

    /// All names of [`state`](UpdateRule::state).
    pub const STATES: [&str; 3] = ["velocity", "mean", "mean_square"];
}

/// Momentum, rho and betas: an average must forget.
pub(crate) fn fading(x: impl Into<f64>) -> (bool, &'static str) {
    ((0.0..1.0).contains(&x.into()), "a number from 0 to below 1")
}

fn check_epsilon(of: &str, epsilon: f32) -> Result<()> {
    check(of, "epsilon", epsilon, (epsilon.is_finite() && epsilon > 0.0, "a positive number"))
}

pub(crate) fn check_weight_decay(of: &str, decay: WeightDecay) -> Result<()> {
    let w = decay.strength();
    check(of, "weight-decay", w, (w.is_finite() && w >= 0.0, "a number of 0 or more"))
}

/// `ratio` for a tensor with a weight decay `w`, unless one of these norms is 0.
fn trust_ratio(w: f32, norms: [f64; 2], ratio: f64) -> f32 {
    if w != 0.0 && norms.iter().all(|norm| *norm > 0.0) { ratio as f32 } else { 1.0 }
}

/// Without a weight decay no trust ratio is used, and the rule is another.
fn check_has_decay(of: &str, decay: WeightDecay) -> Result<()> {
    let (w, accepted) = (decay.strength(), "a positive number: tensors without one have no trust ratio");
    check(of, "weight-decay", w, (w != 0.0, accepted))
}

/// Every slice has a number for each parameter.
#[inline(always)]
fn check_lengths<const N: usize>(params: &[f32], others: [&[f32]; N]) {
    for other in others {
        assert_eq!(other.len(), params.len(), "gradients and state have as many numbers as the parameters");
    }
}
