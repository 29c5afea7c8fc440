//! Image augmentation with the semantics of Keras' ImageDataGenerator, reproducible draw by draw.
//!
//! - [`ImageDataGenerator`] holds the options, with Keras' names and defaults. [`ImageDataGenerator::build`]
//!   checks them and gives a [`Pipeline`] for images of one shape.
//! - [`Compose`] lists random operations in an order of your choice, each always or with a probability.
//! - [`Pipeline::apply_batch`] augments a batch of bytes or floats, into NHWC or NCHW. Shifts are bilinear
//!   and equal those of Keras and SciPy to the last few bits, edges included.
//! - A [`Loader`] makes batches ahead of time on worker threads. Its results depend neither on their number
//!   nor on the step at which an epoch is entered.
//! - A [`Draws`] value holds the random decisions about a sample: a pure function of (seed, epoch, sample).
//!   It can be printed and applied again. No state is carried from one sample to the next.
//!
//! # A batch in your own loop
//!
//! ```
//! use towers_augment::{ImageDataGenerator, Layout};
//!
//! let pipeline = ImageDataGenerator::new()
//!     .rotation_range(15.0)
//!     .width_shift_range(0.1)
//!     .horizontal_flip(true)
//!     .rescale(1.0 / 255.0)
//!     .build([32, 32, 3])?;
//! let (seed, epoch, indices) = (1, 0, [17, 4, 99, 23]); // the samples' places in the training set
//! let pictures = vec![128_u8; 4 * 32 * 32 * 3]; // rows, columns, channels
//! let mut x = vec![0.0; pictures.len()]; // images, channels, rows, columns
//! pipeline.apply_batch(seed, epoch, &indices, &pictures, Layout::Nchw, &mut x)?;
//! # Ok::<(), towers_augment::Error>(())
//! ```
//!
//! # A whole set
//!
//! ```
//! use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Mean, Samples};
//! use towers_augment::ndarray::Array4;
//!
//! // 100 images of 32x32 RGB pixels with their labels; crate `cifar` reads real ones.
//! let images = Array4::from_shape_fn((100, 32, 32, 3), |(n, y, x, c)| (n + 7 * y + 3 * x + c) as u8);
//! let samples = Samples::new(images.clone(), (0..100).map(|n| n % 10).collect::<Vec<u16>>())?;
//!
//! // The data flow of the MiniGoogLeNet tutorial.
//! let pipeline = ImageDataGenerator::new()
//!     .subtract_mean_first(Mean::per_pixel(images.view())?)
//!     .width_shift_range(0.1)
//!     .height_shift_range(0.1)
//!     .horizontal_flip(true)
//!     .build(samples.shape())?;
//! println!("sample 41 in epoch 3: {}", pipeline.draw(1, 3, 41));
//!
//! let options = LoaderOptions::new().batch_size(64).seed(1).workers(2);
//! let mut loader = Loader::new(samples, pipeline, options)?;
//! for batch in loader.epoch(0, 0)? {
//!     let batch = batch?;
//!     println!("step {}: {} images, {} floats", batch.step, batch.len(), batch.x.len());
//! }
//! # Ok::<(), towers_augment::Error>(())
//! ```
//!
//! # Features
//!
//! - `png` (on by default): `save_picture`, and `save_to_dir` of a loader.
//! - `serde`: `Serialize` and `Deserialize` for the options.

#![forbid(unsafe_code)]

mod affine;
mod apply_batch;
mod aug_mix;
mod auto_augment;
mod batch;
mod builder;
mod color_jitter;
mod compose;
mod drawing;
mod draws;
mod effect;
mod eigen;
pub mod engine;
mod erased;
mod error;
mod fill;
mod fit;
mod flow;
mod gaussian_blur;
mod generator;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod golden;
mod hue;
mod listed;
mod loader;
mod loader_options;
mod many;
mod mean;
mod mix;
mod moved;
mod operation;
pub mod parts;
mod patches;
mod photometric;
mod pipeline;
mod pixel;
mod place;
mod prefetch;
mod preprocess;
mod preview;
mod rand_augment;
mod random_erasing;
mod random_perspective;
mod resample;
mod resized_crop;
mod samples;
#[cfg(feature = "png")]
mod save;
mod shift;
mod standardize;
mod strengths;
mod text;
mod trivial_augment;
mod uniform;
mod views;
mod warp;
mod whitening;
mod zoom;

pub use aug_mix::AugMix;
pub use auto_augment::AutoAugment;
pub use batch::Batch;
pub use color_jitter::ColorJitter;
pub use compose::{Compose, Flip, Transform};
pub use draws::Draws;
pub use effect::{Drawn, Effect};
pub use error::Error;
pub use fill::FillMode;
pub use gaussian_blur::GaussianBlur;
pub use generator::ImageDataGenerator;
pub use loader::Loader;
pub use loader_options::LoaderOptions;
pub use mean::Mean;
/// The crate of the arrays that hold images.
pub use ndarray;
pub use operation::Operation;
pub use pipeline::{Pipeline, Scratch};
pub use pixel::{Layout, Pixel};
pub use rand_augment::RandAugment;
pub use random_erasing::RandomErasing;
pub use random_perspective::RandomPerspective;
pub use resized_crop::RandomResizedCrop;
pub use samples::Samples;
#[cfg(feature = "png")]
pub use save::save_picture;
pub use shift::ShiftRange;
pub use trivial_augment::TrivialAugmentWide;
pub use views::TestTime;
pub use zoom::ZoomRange;

/// The README's example is compiled and run with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
