//! The training loop of `towers`: recipes, observers, checkpoints.
//!
//! A [`Config`] has all options of a run and is saved with it; a [`recipe`] is a named one. A [`Training`] runs it
//! on data in memory, with one replica per device, and reports to [`Observer`]s.
//!
//! ```
//! use towers_train::{Config, Training, recipe};
//!
//! let mut config: Config = recipe("quick")?;
//! config.training.epochs = 1;
//! config.training.batch_size = 32;
//! config.placement.devices.threads = 1;
//! let data = towers_cifar::synthetic(1, 256, 64);
//! let outcome = Training::new(&config, data).run()?;
//! let epoch = &outcome.state.history[0];
//! println!("loss {:.3}, accuracy {:.3}", epoch.metrics["loss"], epoch.metrics["val_acc"]);
//! assert_eq!((epoch.epoch, outcome.state.step), (1, 8));
//! # Ok::<(), towers_train::Error>(())
//! ```
#![forbid(unsafe_code)]

mod data;
mod devices;
mod error;
#[cfg_attr(not(feature = "cuda"), path = "no_gpus.rs")]
mod gpus;
mod kept_devices;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
mod process;
mod resume;
mod run;

#[doc(hidden)]
pub use data::fingerprint;
pub use devices::{check_devices, count_gpus, describe_devices, open_device, open_devices, unused_gpu};
pub use error::{Error, Result};
pub use kept_devices::kept_devices;
pub use mpi::end_failed_job;
pub use process::Process;
pub use resume::Resume;
#[doc(hidden)]
pub use run::median;
pub use run::{
    End, Meter, Outcome, StepOptions, StopFlag, Totals, Training, ascend, gradients, train_step, update,
};
pub use run::{FittingBatch, fitting_batch};
pub use towers_callbacks::Observer;
pub use towers_config::{Config, recipe};
#[cfg(feature = "mpi")]
use towers_mpi as mpi;
pub use towers_program::Device;

/// The callbacks of a run.
pub use towers_callbacks as callbacks;
/// The data sets' crate, for callers with their own data.
pub use towers_cifar as cifar;
/// The configuration of a run.
pub use towers_config as config;
pub use towers_rendezvous as rendezvous;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
