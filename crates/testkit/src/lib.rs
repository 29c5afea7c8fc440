//! Test support for the towers crates; nothing that ships depends on it.
//!
//! - [`GradientCheck`]: every gradient of a graph against central differences, in f64.
//! - [`Golden`]: values that another library computed, from small safetensors files in `tests/golden`.
//! - [`compare`] and [`read`]: numbers of any device against those that were expected, with a [`Tolerance`].
//! - [`on_every_device`]: one test body on every device that is present.
//! - [`pattern`] and [`fingerprint`]: numbers that a script in another language makes too, and a short summary of many
//!   numbers, so that golden files stay small.
#![forbid(unsafe_code)]

mod compare;
mod devices;
mod error;
mod golden;
mod gradient;
mod pattern;
mod worst;

pub use compare::{Tolerance, compare, read};
pub use devices::on_every_device;
pub use error::{Error, Result};
pub use golden::Golden;
pub use gradient::{GradientCheck, Report};
pub use pattern::{fingerprint, pattern};
pub use worst::Worst;
