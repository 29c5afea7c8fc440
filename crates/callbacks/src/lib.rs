//! The callbacks of a training run: checkpoints, early stopping, history, curves, TensorBoard, MLflow and CSV files, progress.
//!
//! A callback is an [`Observer`]: it sees figures and, on request, copies of tensors, never a device. Each
//! file of this crate is one callback, with its options, their parsing, and its observer. [`Outputs`] holds
//! the options of all, and [`from_config`] builds the callbacks of a configuration.
#![forbid(unsafe_code)]

mod callback;
mod checkpoints;
mod csv_logger;
mod curves;
mod early_stopping;
mod environment;
mod epoch_command;
mod error;
mod figure;
mod format;
mod history;
mod learning_rate_logger;
mod log;
mod max_time;
mod mlflow;
mod model_checkpoint;
mod monitor;
mod observer;
mod outputs;
mod panels;
mod pattern;
mod progress;
mod reduce_lr_on_plateau;
mod run_time;
mod state;
mod status;
mod step_history;
mod tensorboard;
mod terminal;
#[doc(hidden)]
pub mod testing;

pub use callback::{Outside, Run};
pub use checkpoints::{CHECKPOINTS, CheckpointOptions, Checkpoints};
pub use csv_logger::{CsvLogOptions, CsvLogger};
pub use curves::Curves;
pub use early_stopping::{EarlyStop, EarlyStopping};
pub use environment::{Environment, shell_word};
pub use epoch_command::{EpochCommand, EpochCommandOptions};
pub use error::{Error, Result};
pub use figure::figure;
pub use history::{History, read_history};
pub use learning_rate_logger::{LearningRateLogger, LrLogOptions};
pub use log::{LogFormat, LogLine};
pub use max_time::MaxTime;
pub use mlflow::{Mlflow, MlflowOptions};
pub use model_checkpoint::{ModelCheckpoint, ModelCheckpointOptions, SaveFreq};
pub use monitor::Monitor;
pub use observer::{Flow, Observer, Picture, RunInfo, Snapshot, StepInfo};
pub use outputs::{Outputs, TABLES, from_config, stopping};
pub use panels::{Points, metric_panels, points_by_epoch, speed_panels};
pub use progress::Progress;
pub use reduce_lr_on_plateau::{Plateau, ReduceLrOnPlateau};
pub use run_time::RunTime;
pub use state::{EpochRecord, Fingerprint, Partial, Recorded, StepRecord, TrainState, metric_names};
pub use status::Status;
pub use step_history::StepHistory;
pub use tensorboard::{TensorBoard, TensorBoardOptions};
pub use terminal::{aligned, is_control, printable, shortened};

/// The key of a file's metadata under which [`ModelCheckpoint`] writes [`Snapshot::saved`].
pub const SAVED: &str = "towers.saved";

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
