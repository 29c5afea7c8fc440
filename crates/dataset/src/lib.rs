//! Labelled images on [`ndarray`]: a [`Dataset`] of [`Split`]s, in memory or in [`Files`], and their [resizing](Resize).
//!
//! ```
//! use towers_dataset::{Dataset, Split};
//! use ndarray::Array4;
//!
//! let split = |n: usize| Split::new(Array4::zeros((n, 28, 28, 1)), vec![1; n]);
//! let data = Dataset::new("scans", split(6)?, split(2)?, ["healthy", "ill"])?;
//! assert_eq!(data.train.class_counts(2), [0, 6]);
//! assert_eq!(data.reshaped([14, 14, 3])?.test.images.dim(), (2, 14, 14, 3));
//! # Ok::<(), towers_dataset::Error>(())
//! ```

#![forbid(unsafe_code)]

mod data;
mod error;
mod files;
mod limit;
mod panics;
mod pixels;
mod resize;
mod scale;
mod shape;
mod split;

pub use data::{Dataset, ValidationFrom};
pub use error::{BoxError, Error, Result};
pub use files::{Decode, Files};
pub use limit::Limit;
/// The crate of the arrays in which images and labels are.
pub use ndarray;
pub use panics::{catches_panics, caught};
pub use pixels::grey;
pub use resize::Resize;
pub use shape::{CHANNELS, MOST_ASIDE, check_shape};
pub use split::{Split, evenly};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
