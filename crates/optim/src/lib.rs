//! Optimizers that step over slices, and learning-rate schedules as pure functions of the step.
//!
//! - [`Sgd`], [`Rmsprop`], [`Adam`], [`Nadam`], [`Lion`], [`Lars`], [`Lamb`] and [`Muon`] are rules in the conventions of Keras, PyTorch or timm: `step` moves a slice of parameters.
//! - [`Clip`] limits gradients before a step: their values, or their norm for each parameter or for all.
//! - [`Optimizer`] is a rule with its clipping, under the names of Keras and PyTorch; Muon's has another for the [`Rest`].
//! - [`Schedule`] gives the learning rate at a [`Progress`]: a [`Curve`] and, before it, a [`Warmup`].
//!   [`LinearScaling`] multiplies it for larger batches.
//! - [`ParamGroup`] gives some of the parameters another rate, weight decay or end.
//! - [`Sam`] moves parameters to where the loss is higher, for the gradient of a sharpness-aware step.
//! - [`Ema`] decides when a moving average of the weights moves, and when it replaces them.
//!
//! All of them are plain data with a compact form, `sgd:momentum=0.9`: on a command line, and in files by serde (with the feature `serde`).
//!
//! ```
//! use towers_optim::{Curve, Progress, Schedule, Warmup};
//!
//! let schedules = [
//!     Schedule::from(Curve::Constant),
//!     Schedule::from(Curve::poly(1.0)),
//!     Schedule::from(Curve::time(0.01)),
//!     Schedule::from(Curve::milestones([2, 3])),
//!     Schedule::from(Curve::cosine()).with_warmup(Warmup::epochs(1)),
//! ];
//! let mut table = String::new();
//! for schedule in schedules {
//!     let rates = (0..4).map(|epoch| schedule.lr(0.1, &Progress::at_step(epoch * 100, 100, 4)));
//!     let rates: String = rates.map(|lr| format!(" {lr:.4}")).collect();
//!     table += &format!("{:24}{rates}\n", schedule.to_string());
//! }
//! assert_eq!(table, "\
//! constant                 0.1000 0.1000 0.1000 0.1000
//! poly                     0.1000 0.0750 0.0500 0.0250
//! time:decay=0.01          0.1000 0.0500 0.0333 0.0250
//! milestones:at=2/3        0.1000 0.1000 0.0100 0.0010
//! cosine+warmup:epochs=1   0.0000 0.0854 0.0500 0.0146
//! ");
//! ```
//!
//! Values are checked against Keras 2.3.1, Keras 3 and PyTorch: `tests/golden/optim.py` of the repository.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod clip;
mod ema;
mod error;
mod group;
mod number;
mod optimizer;
mod progress;
mod rule;
mod sam;
mod schedule;
#[cfg(feature = "serde")]
mod stored;
mod text;

pub use clip::Clip;
pub use ema::Ema;
pub use error::{Error, Result};
pub use group::ParamGroup;
pub use optimizer::{Optimizer, Rest};
pub use progress::Progress;
pub use rule::*;
pub use sam::Sam;
pub use schedule::{Anneal, Curve, LinearScaling, Per, Schedule, Warmup};
