//! Axes for curves of a training: ranges and ticks that suit losses, accuracies and epochs.
//!
//! ```
//! use plot::Axis;
//!
//! let epochs = Axis::epochs(1..=70);
//! assert_eq!(epochs.ticks[..3], [1.0, 10.0, 20.0]);
//! // A loss that explodes for an epoch does not hide the others.
//! assert_eq!(Axis::loss([2.0, 1.5, 1e6, 1.0, 0.8, 0.7, 0.6, 0.5]).range.end, 2.5);
//! ```
#![forbid(unsafe_code)]

mod axis;

pub use axis::Axis;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
