//! The training loop of `towers`: recipes, observers, checkpoints, evaluation.
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
mod bench;
mod classifier;
mod config;
mod data;
mod devices;
#[cfg(feature = "emulation")]
mod emulated;
mod error;
mod evaluate;
mod export;
mod fingerprint;
mod first_step;
mod fit;
mod foreign;
mod image_set;
mod image_size;
mod import;
mod input;
mod memory;
mod model_file;
mod optimizer;
mod pace;
mod pass;
mod passes;
mod pipeline;
mod pipelined;
mod pixels;
mod preview;
mod process;
mod profile;
mod program;
mod replica_bench;
pub mod report;
mod resume;
mod roofline;
mod rounds;
mod share;
mod speed;
mod standardization;
mod timeline;
mod weights;
mod whitening;
mod worker;

pub use bench::{BenchMode, BenchOptions, BenchResult, bench};
pub use callbacks::{
    CHECKPOINTS, CheckpointOptions, CsvLogOptions, EarlyStop, EpochRecord, Fingerprint, Flow, MODEL_FILE,
    ModelCheckpointOptions, Observer, Outputs, Partial, Picture, Plateau, ReduceLrOnPlateau, RunInfo, SaveFreq,
    Snapshot, StepInfo, TensorBoardOptions, TrainState, printable, shortened,
};
pub use classifier::{Classifier, Prediction};
pub use config::{
    Arithmetic, Config, DataFiles, DataSet, DeviceKind, Devices, Difference, Placement, RECIPES, Training,
    differences, find_recipe, is_training, key_of_flag, read_recipe, recipe, recipes, save_config, tables,
    write_recipe,
};
pub use data::{load_data, load_test_data};
pub use devices::{check_devices, check_simd, count_gpus, describe_devices, open_devices, unused_gpu};
pub use error::{Error, Result};
pub use evaluate::{Evaluation, Mistake, evaluate, measured_on};
pub use export::{Format, export};
pub use fingerprint::{check_data, fingerprint};
pub use first_step::{FirstStep, first_step};
pub use fit::{End, Outcome, StopFlag, train, train_model, train_on};
pub use image_size::ImageSize;
pub use import::{Assumed, ModelKind, open_model};
pub use input::{Input, Preprocessing};
pub use interchange::pytorch::names_classes;
pub use model_file::Trained;
pub use preview::{Preview, preview, save_pictures};
pub use process::Process;
pub use profile::{LayerProfile, Profile, profile};
pub use program::programs;
pub use replica_bench::{ReplicaBench, bench_replicas};
pub use resume::{Resume, Saved};
pub use roofline::{Roof, Roofline, roofline};
pub use options::{hint as did_you_mean, nearest};
pub use tensor_cuda::library_path;
pub use timeline::{Timeline, timeline};
pub use weights::DeviceWeights;

/// The data sets' crate, for callers that hand in data of their own.
pub use augment;
/// The callbacks of a run.
pub use callbacks;
/// Reads the text of a regular file.
pub use checkpoint::read_text;
pub use cifar;
pub use optim;
/// Where this process stands among others, and how they find each other.
pub use parallel::{cluster, rendezvous};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
