//! The description of a training run: its options, recipe, data and network, without a device.
//!
//! A [`Config`] has all options of a run and is saved with it as `config.json`; a [`recipe`] is a named one. [`tables`] lists the
//! options for a command line, files and documentation. [`load_data`] reads the data that a configuration names, and [`open_model`]
//! the network of a run or of a file of another program. [`differences`] compares two runs.
//!
//! ```
//! use towers_config::{Config, read_recipe, recipe};
//!
//! let mut config: Config = recipe("quick")?;
//! config.set_text("batch_size", &["32"])?;
//! config.check()?;
//! assert_eq!(config.training.batch_size, 32);
//!
//! let error = read_recipe("like = 'quick'\nepoch = 15", "mine").unwrap_err().to_string();
//! assert!(error.ends_with("did you mean `epochs`?"), "{error}");
//! # Ok::<(), towers_config::Error>(())
//! ```
#![forbid(unsafe_code)]

mod augmentation;
mod check;
mod class_weight;
mod config;
mod cuts;
mod data;
mod data_limit;
mod device_weights;
mod differences;
mod digest;
mod error;
mod file;
mod forms;
mod frozen;
mod layer_decay;
mod layers_file;
mod lr_scaling;
pub mod memory;
mod open_model;
mod optimizer;
mod placement;
mod precision;
mod recipe;
#[cfg(test)]
mod reference_page;
mod saved;
mod table;
mod training;
mod weights;

pub use check::Checked;
pub use class_weight::{ClassWeight, WeightRule};
pub use config::{Config, save_config};
pub use cuts::{cut_names, pipeline_cuts};
pub use data::{
    DATA_SOURCE, Preview, Progress, UNREADABLE, augmented, default_data_dir, describe_data, draw_batch,
    load_data, load_test_data, load_training_images, preview, samples, save_unreadable,
};
pub use data_limit::DataLimit;
pub use device_weights::DeviceWeights;
pub use differences::{Difference, agreed, differences, hyperparameters};
pub use digest::{digest, digest_file, hex};
pub use error::{Error, Result};
pub use file::{find_recipe, read_recipe, recipe, recipes, write_recipe};
pub use forms::parse_gpus;
pub use layers_file::OfFile;
pub use open_model::{ModelKind, open_model, open_weights, skipped_checkpoints};
pub use placement::{DataFiles, DeviceKind, Devices, Kernels, Placement, When};
pub use recipe::{RECIPES, default_recipe};
pub use saved::Saved;
pub use table::{table, tables};
pub use training::{Arithmetic, DataSet, Sampler, Training};
pub use weights::first_weights;

pub use towers_callbacks::{CheckpointOptions, EarlyStop, Outputs, ReduceLrOnPlateau};
pub use towers_interchange::Compiled;
pub use towers_models::{Architecture, Model};
pub use towers_trained::{ColorMode, ImageSize, Preprocessing, Resizing};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
