//! Who watches a run: progress, history, curves, checkpoints, early stopping, CSV, TensorBoard.
//!
//! Each is an [`Observer`](crate::Observer) that needs none of the others; [`train`](crate::train) takes any
//! of them. [`from_config`] makes those that a [`Config`](crate::Config) asks for.
//!
//! ```
//! use train::Observer;
//! use train::observers::{Checkpoints, Curves, History, Progress};
//!
//! # let folder = tempfile::tempdir()?;
//! # let run = folder.path();
//! let config = train::recipe("minigooglenet")?;
//! let observers: Vec<Box<dyn Observer>> = vec![
//!     Box::new(Progress::new(true)),
//!     Box::new(History::new(run)),
//!     Box::new(Curves::new(run, "minigooglenet on CIFAR-10")),
//!     Box::new(Checkpoints::new(run, &config)?),
//! ];
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoints;
mod csv_logger;
mod curves;
mod early_stopping;
mod environment;
mod event;
mod event_reader;
mod from_config;
mod histogram;
mod history;
mod model_checkpoint;
mod progress;
mod tensorboard;
#[cfg(test)]
pub(crate) mod testing;

pub use checkpoints::Checkpoints;
pub use csv_logger::CsvLogger;
pub use curves::Curves;
pub use early_stopping::EarlyStopping;
pub use environment::Environment;
pub use from_config::from_config;
pub use history::{History, read_history};
pub use model_checkpoint::ModelCheckpoint;
pub use progress::Progress;
pub use tensorboard::TensorBoard;
