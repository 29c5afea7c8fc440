//! Training curves as SVG and, with the feature `png`, as PNG.
//!
//! A [`Chart`] has panels side by side, a [`Panel`] has curves, and a [`Curve`] has a value an epoch. The
//! layout is the same for both formats: lines, marks and texts. One module writes them as SVG, another one
//! turns them into pixels.
//!
//! ```
//! use towers_plot::{Chart, Curve, Panel, Scale};
//!
//! let loss = vec![Curve::new("training", [2.3, 1.1, 0.6]), Curve::new("validation", [2.0, 1.3, 0.9])];
//! let chart = Chart::new("a small CNN", vec![Panel::new("Loss", Scale::Loss, loss)]);
//! assert!(chart.svg().starts_with("<svg xmlns="));
//! ```
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod mark;
#[cfg(feature = "png")]
mod raster;
mod svg;

pub use axis::{Axis, Scale, short};
pub use chart::{Chart, Curve, Format, Highlight, Panel};
pub use svg::escaped;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
