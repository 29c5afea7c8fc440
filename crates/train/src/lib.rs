//! The training loop of `towers`: recipes, observers, checkpoints.
//!
//! A [`Config`] says everything about a run and is saved with it; a [`recipe`] is a named one. [`train`] runs it on data
//! in memory, one replica a device, and tells [`Observer`]s what happens.
//!
//! ```
//! use train::{Config, StopFlag, recipe, train};
//!
//! let mut config: Config = recipe("quick")?;
//! config.epochs = 1;
//! config.batch_size = 32;
//! config.devices.threads = 1;
//! let data = cifar::synthetic(1, 256, 64);
//! let outcome = train(&config, data, None, &mut [], &StopFlag::default())?;
//! let epoch = &outcome.state.history[0];
//! println!("loss {:.3}, accuracy {:.3}", epoch.loss, epoch.val_acc);
//! assert_eq!((epoch.epoch, outcome.state.step), (1, 8));
//! # Ok::<(), train::Error>(())
//! ```
#![forbid(unsafe_code)]

mod atomic;
mod average;
mod batch_picture;
mod callbacks;
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
mod keys;
mod lr_scaling;
mod memory;
mod meter;
mod observer;
pub mod observers;
mod open_model;
mod optimizer;
mod pace;
mod passes;
mod pipeline;
mod pipelined;
mod preview;
mod process;
mod recipe;
mod recipe_file;
#[cfg(test)]
mod recipe_steps;
mod resume;
mod share;
mod speed;
mod spelling;
mod state;
mod step;
mod terminal;
mod weights;
mod whitening;
mod worker;

pub use batch_picture::Picture;
pub use callbacks::{
    CsvLogOptions, EarlyStop, ModelCheckpointOptions, Plateau, ReduceLrOnPlateau, SaveFreq,
    TensorBoardOptions, mode,
};
pub use config::{CheckpointOptions, Config, DataOptions, DeviceKind, DeviceOptions, save_config};
pub use data::{load_data, load_test_data};
pub use devices::{check_devices, check_simd, count_gpus, describe_devices, open_devices, unused_gpu};
pub use error::{Error, Result};
pub use fingerprint::Fingerprint;
pub use fit::{End, Outcome, StopFlag, train, train_model, train_on};
pub use graph_capture::GraphCapture;
pub use meter::{Meter, Totals};
pub use observer::{Flow, Observer, RunInfo, Snapshot, StepInfo};
pub use open_model::{ModelKind, open_model};
pub use pipeline::pipeline_cuts;
pub use preview::{Preview, preview, save_pictures};
pub use process::{Process, with_device_facts};
pub use recipe::{RECIPES, recipe};
pub use recipe_file::{find_recipe, read_recipe, write_recipe};
pub use resume::{CHECKPOINTS, Resume, Saved};
pub use speed::median;
pub use spelling::{hint as did_you_mean, nearest, spelled};
pub use state::{EpochRecord, Partial, TrainState};
pub use step::{StepOptions, gradients, train_step, update};
pub use tensor_cuda::library_path;
pub use terminal::{is_control, printable, shortened};
pub use trained::{ImageSize, Preprocessing};
pub use weights::DeviceWeights;

/// The data sets' crate, for callers that hand in data of their own.
pub use augment;
/// Reads the text of a regular file.
pub use checkpoint::read_text;
pub use cifar;
pub use optim;
/// Where this process stands among others, and how they find each other.
pub use parallel::{cluster, rendezvous};

use trained::{MODEL_FILE, standardization};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
