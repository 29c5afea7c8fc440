//! Pictures of class folders, or of a table with their classes, as data sets: PNG, JPEG, WebP, BMP and GIF, resized as Pillow does.
//!
//! - [`read`] and [`Pictures`] make a [`Dataset`] of folders, in memory or [streamed](Pictures::on_demand_above).
//! - [`Table`] is a CSV file with the class of each picture.
//! - [`picture`] and [`Decoder`] read single files.
//! - [`Found`] tells which files of a folder are pictures.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! for file in ["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"] {
//!     let file = folder.path().join(file);
//!     std::fs::create_dir_all(file.parent().unwrap())?;
//!     image::RgbImage::new(40, 30).save(file)?;
//! }
//! let pets = towers_pictures::Pictures::class_folders(folder.path()).image_size(24, 24).read()?;
//! assert_eq!((pets.classes, pets.train.images.dim()), (vec!["cat".into(), "dog".into()], (2, 24, 24, 3)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files are taken as hostile: memory and time are bounded. A panic of a decoder is an error too, unless panics
//! abort the program. No panic hook is set: a program that wants no message of such a panic asks
//! [`catches_panics`] in its own.

#![forbid(unsafe_code)]

mod decode;
mod error;
mod found;
mod jpeg;
mod listing;
mod pictures;
mod progress;
mod single;
mod source;
mod split_decoder;
mod splits;
mod table;

pub use decode::Decoder;
pub use error::{Error, Result};
pub use found::{ENDINGS, Found};
pub use pictures::{Pictures, read};
pub use progress::Progress;
pub use single::picture;
pub use table::Table;
/// The crate of the data set's types.
pub use towers_dataset as dataset;
pub use towers_dataset::{Dataset, Files, Resize, Split, ValidationFrom, catches_panics};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
