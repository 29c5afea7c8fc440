//! The training loop of `towers`: recipes, observers, checkpoints.
//!
//! A [`Config`] has all options of a run and is saved with it; a [`recipe`] is a named one. [`train`] runs it
//! on data in memory, with one replica per device, and reports to [`Observer`]s.
//!
//! ```
//! use train::{Config, StopFlag, recipe, train};
//!
//! let mut config: Config = recipe("quick")?;
//! config.training.epochs = 1;
//! config.training.batch_size = 32;
//! config.placement.devices.threads = 1;
//! let data = cifar::synthetic(1, 256, 64);
//! let outcome = train(&config, data, None, &mut [], &StopFlag::default())?;
//! let epoch = &outcome.state.history[0];
//! println!("loss {:.3}, accuracy {:.3}", epoch.metrics["loss"], epoch.metrics["val_acc"]);
//! assert_eq!((epoch.epoch, outcome.state.step), (1, 8));
//! # Ok::<(), train::Error>(())
//! ```
#![forbid(unsafe_code)]

mod config;
mod data;
mod devices;
mod error;
#[cfg_attr(not(feature = "cuda"), path = "no_gpus.rs")]
mod gpus;
mod memory;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
mod open_model;
mod process;
mod resume;
mod run;
mod trained_error;

#[cfg(feature = "mpi")]
use ::mpi;
pub use callbacks::{
    CHECKPOINTS, CheckpointOptions, CsvLogOptions, EarlyStop, EpochRecord, Fingerprint, Flow,
    ModelCheckpointOptions, Observer, Outputs, Partial, Picture, Plateau, ReduceLrOnPlateau, RunInfo,
    SaveFreq, Snapshot, StepInfo, StepRecord, TensorBoardOptions, TrainState, printable, shortened,
};
pub use config::{
    Arithmetic, Config, DataFiles, DataSet, DeviceKind, DeviceWeights, Devices, Difference, Kernels, OfFile,
    Placement, RECIPES, Training, When, default_recipe, differences, find_recipe, parse_gpus, read_recipe,
    recipe, recipes, save_config, table, tables, write_recipe,
};
pub use data::{
    Preview, Progress, UNREADABLE, fingerprint, load_data, load_test_data, preview, save_unreadable,
};
pub use devices::{check_devices, check_simd, count_gpus, describe_devices, open_devices, unused_gpu};
pub use error::{Error, Result};
pub use interchange::Compiled;
pub use memory::available as available_memory;
pub use models::{Architecture, Model};
pub use mpi::end_failed_job;
pub(crate) use open_model::open_weights;
pub use open_model::{ModelKind, open_model, skipped_checkpoints};
pub use options::{hint as did_you_mean, nearest};
pub use process::{Process, with_device_facts};
pub use program::Device;
pub use resume::{Resume, Saved};
pub use run::{
    End, GraphCapture, Meter, Outcome, REPLAY, SampleStep, StepOptions, StopFlag, Totals, comparison_device,
    gradients, median, pipeline_cuts, train, train_model, train_on, train_step, update, way_around,
};
pub use trained::{ColorMode, ImageSize, Preprocessing, Resizing};

/// The data sets' crate, for callers with their own data.
pub use augment;
/// The callbacks of a run.
pub use callbacks;
pub use cifar;
pub use dataset;
pub use optim;
/// The table of options.
pub use options;
/// The place of this process among others, and how they meet.
pub use pictures;
pub use rendezvous;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
