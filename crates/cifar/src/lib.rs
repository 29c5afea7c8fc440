//! CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST on [`ndarray`]: found where they already are, or fetched, verified and unpacked.
//!
//! - [`Cifar`] finds the data on this machine (its own folder, Keras', torchvision's; binary or python batch
//!   files) or downloads it: resumable, from several sources, verified, put into place in one move.
//! - [`read_dir`] reads a folder of batch files.
//! - [`synthetic`] draws ten classes of figures, for trials and tests without any file.
//! - [`idx::read_dir`] reads a folder of `idx` files, the format of MNIST.
//!
//! All of them give a [`Dataset`]: images `[n, 32, 32, 3]` of `u8`, or `[n, 28, 28, 1]` of MNIST, labels, class names.
//!
//! ```
//! use towers_cifar::{Cifar, Dataset, Kind};
//! use towers_cifar::ndarray::Axis;
//!
//! fn data() -> Dataset {
//!     let cifar = Cifar::new(Kind::Cifar10).offline(true).progress(|step| eprintln!("{step}"));
//! #   let cifar = cifar.data_dir("no/such/folder").also_look_in(["neither/this"]);
//!     cifar.load().unwrap_or_else(|error| {
//!         eprintln!("{error}; going on with synthetic images");
//!         towers_cifar::synthetic(1, 1000, 200)
//!     })
//! }
//!
//! let Dataset { train, classes, .. } = data();
//! let first = train.images.index_axis(Axis(0), 0); // 32 rows, 32 columns, 3 channels
//! println!("{} shows a {}", first.mapv(f32::from).sum(), classes[usize::from(train.labels[0])]);
//! # assert_eq!(first.dim(), (32, 32, 3));
//! ```
//!
//! # Feature
//! `download` (on by default) brings an HTTP client along: some twenty packages, TLS among them. With `default-features = false`
//! everything is as with [`Cifar::offline`]: the data come from folders and archives on this machine.
//!
//! Files, archives and servers are taken as hostile. Sizes, counts, labels and checksums are verified, memory
//! and time are bounded, and pickles are read without executing anything. Anything wrong is an [`Error`] that
//! names the place, and no half-written file stays. A panic of the HTTP client is an error too, unless panics
//! abort the program. No panic hook is set: a program that wants no message of such a panic asks
//! [`catches_panics`] in its own.

#![forbid(unsafe_code)]

mod binary;
mod checksum;
mod cifar;
#[cfg(feature = "download")]
mod download;
mod error;
mod fetch;
mod find;
pub mod idx;
mod kinds;
mod layout;
pub mod npz;
mod official;
mod pickle;
mod progress;
mod python;
#[cfg(test)]
mod random_bytes;
mod records;
mod sizes;
mod synthetic;
mod unpack;

pub use crate::cifar::Cifar;
#[cfg(feature = "download")]
pub use download::Source;
pub use error::{Error, Result};
pub use find::read_dir;
pub use kinds::{Kind, class_names, coarse_class_names};
pub use progress::Progress;
pub use sizes::{CHANNELS, IMAGE_BYTES, SIDE};
pub use synthetic::{SYNTHETIC_TEST, SYNTHETIC_TRAIN, synthetic};
/// The crate of the data set's types.
pub use towers_dataset as dataset;
/// The crate of the arrays in which images and labels are.
pub use towers_dataset::ndarray;
pub use towers_dataset::{Dataset, Split, catches_panics};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
