//! The training loop of `towers`: recipes, observers, checkpoints.
//!
//! A [`Config`] says everything about a run and is saved with it; a [`recipe`] is a named one. [`train`] runs it on data
//! in memory, one replica a device, and tells [`Observer`]s what happens.
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
//! println!("loss {:.3}, accuracy {:.3}", epoch.loss, epoch.val_acc);
//! assert_eq!((epoch.epoch, outcome.state.step), (1, 8));
//! # Ok::<(), train::Error>(())
//! ```
#![forbid(unsafe_code)]

mod average;
mod batch_picture;
mod config;
mod data;
mod devices;
#[cfg(feature = "emulation")]
mod emulated;
mod error;
mod fingerprint;
mod fit;
mod graph_capture;
mod image_set;
mod memory;
mod meter;
mod open_model;
mod optimizer;
mod pace;
mod passes;
mod pipeline;
mod pipelined;
mod preview;
mod process;
mod resume;
mod share;
mod speed;
mod step;
mod weights;
mod whitening;
mod worker;

pub use callbacks::{
    CHECKPOINTS, CheckpointOptions, CsvLogOptions, EarlyStop, EpochRecord, Fingerprint, Flow,
    ModelCheckpointOptions, Observer, Outputs, Partial, Picture, Plateau, ReduceLrOnPlateau, RunInfo,
    SaveFreq, Snapshot, StepInfo, TensorBoardOptions, TrainState, is_control, printable, shortened,
};
pub use config::{
    Arithmetic, Config, DataFiles, DataSet, DeviceKind, Devices, Difference, Placement, RECIPES, Training,
    differences, find_recipe, is_training, key_of_flag, parse_gpus, read_recipe, recipe, recipes,
    save_config, tables, write_recipe,
};
pub use data::{load_data, load_test_data};
pub use devices::{check_devices, check_simd, count_gpus, describe_devices, open_devices, unused_gpu};
pub use error::{Error, Result};
pub use fingerprint::{check_data, fingerprint};
pub use fit::{End, Outcome, StopFlag, train, train_model, train_on};
pub use graph_capture::GraphCapture;
pub use meter::{Meter, Totals};
pub use open_model::{ModelKind, open_model};
pub use options::{hint as did_you_mean, nearest};
pub use pipeline::pipeline_cuts;
pub use preview::{Preview, preview, save_pictures};
pub use process::{Process, with_device_facts};
pub use program::Device;
pub use resume::{Resume, Saved};
pub use speed::median;
pub use step::{StepOptions, gradients, train_step, update};
pub use tensor_cuda::library_path;
pub use trained::{ImageSize, Preprocessing};
pub use weights::DeviceWeights;

/// The data sets' crate, for callers that hand in data of their own.
pub use augment;
/// The callbacks of a run.
pub use callbacks;
/// Reads the text of a regular file.
pub use checkpoint::read_text;
pub use cifar;
pub use optim;
/// The table of options.
pub use options;
/// Where this process stands among others, and how they find each other.
pub use parallel::{cluster, rendezvous};

use trained::standardization;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
