//! How fast networks train and classify, and where the time goes.
//!
//! - [`bench()`] measures the throughput of one replica, [`bench_replicas`] that of several, [`bench_process`] that of several processes;
//! - [`profile`] measures each layer, [`roofline`] the peak of the processor;
//! - [`first_step`] measures how soon a process trains;
//! - [`timeline`] shows when each op of each replica ran, and [`programs`] prints the ops;
//! - [`LrRange`] trains with rising rates, and suggests one.
//!
//! All but the last train on random data in memory, by the step of a run: [`towers_train::train_step`].
//!
//! ```
//! use towers_bench::{BenchOptions, profile};
//!
//! let mut config = towers_config::recipe("quick")?;
//! config.placement.devices.threads = 1;
//! let options = BenchOptions { batch: Some(2), seconds: 0.0, ..BenchOptions::default() };
//! let profile = profile(&config, &options)?;
//! assert!(profile.layers.iter().any(|layer| layer.forward_gflops > 0.0));
//! # Ok::<(), towers_bench::Error>(())
//! ```
#![forbid(unsafe_code)]

mod first_step;
mod lr_find;
mod options;
mod profile;
mod programs;
mod replica_bench;
mod roofline;
mod setup;
mod subject;
mod summary;
mod text;
mod throughput;
mod timeline;

pub use first_step::{FirstStep, first_step};
pub use lr_find::{LrCurve, LrRange, left_out};
pub use options::{BenchMode, BenchOptions};
pub use profile::{LayerProfile, Profile, profile};
pub use programs::programs;
pub use replica_bench::{ReplicaBench, bench_process, bench_replicas};
pub use roofline::{Roof, Roofline, roofline};
pub use setup::Setup;
pub use summary::summary;
pub use throughput::{BenchResult, bench};
pub use timeline::{Timeline, timeline};
pub use towers_train::{Error, Result};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
