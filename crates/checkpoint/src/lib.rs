//! Named tensors and JSON state on disk: atomic, verified, resumable.
//!
//! A [`Store`] is a folder of checkpoints. Each is a folder with the tensors of a training run
//! (`tensors.safetensors`) and its other state (`state.json`). `complete.json` marks the checkpoint as
//! complete, and has the length and the SHA-256 of both:
//!
//! ```text
//! checkpoints/
//!   epoch-0002/   tensors.safetensors  state.json  complete.json
//!   epoch-0003/   tensors.safetensors  state.json  complete.json
//! ```
//!
//! A checkpoint is written beside its place, synced, and renamed into it. So a kill at any moment, or a full
//! disk, leaves the earlier checkpoints intact. Loading verifies every byte. [`Store::newest_valid`] skips
//! damaged checkpoints and says why.
//!
//! ```
//! use towers_checkpoint::{Policy, Store, Tensors, epoch_name};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct State {
//!     epoch: u64,
//!     learning_rate: f64,
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let run = folder.path();
//! let store = Store::open(run.join("checkpoints"))?;
//! let policy = Policy { keep_last: Some(2), ..Policy::default() };
//! for epoch in 1..=3 {
//!     let mut tensors = Tensors::new();
//!     tensors.insert("dense/kernel", [2, 2], vec![epoch as f32; 4])?;
//!     store.save(&epoch_name(epoch), &tensors, &State { epoch, learning_rate: 0.1 })?;
//!     store.prune(&policy, None)?;
//! }
//!
//! // The newest checkpoint is hit by a broken disk ...
//! std::fs::write(run.join("checkpoints/epoch-0003/tensors.safetensors"), "broken")?;
//! // ... so the search finds the one before it, and says so.
//! let search = store.newest_valid::<State>()?;
//! for skipped in &search.skipped {
//!     eprintln!("skipped: {}", skipped.why);
//! }
//! let checkpoint = search.found.ok_or("nothing to resume from")?;
//! assert_eq!((checkpoint.name.as_str(), checkpoint.state.epoch), ("epoch-0002", 2));
//! assert_eq!(checkpoint.tensors.get("dense/kernel").ok_or("it was saved")?.data(), [2.0; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every bit of a tensor comes back, NaN payloads and -0.0 included, and so does every finite number in the
//! state. [`save_tensors`] and [`load_tensors`] read and write single safetensors files, which Python's
//! `safetensors` reads and writes too. [`Policy`] decides which checkpoints to save and keep.

#![forbid(unsafe_code)]

mod error;
mod file;
mod fingerprint;
mod folders;
mod format;
mod lock;
mod mark;
mod name;
mod policy;
mod store;
mod tensors;

pub use error::{Error, Result};
pub use file::{load_tensors, load_tensors_named, read_header, save_tensors};
pub use folders::Skipped;
pub use format::{Header, MAX_HEADER};
pub use name::{MAX_NAME, epoch_name, step_name};
pub use policy::{Best, BestSoFar, Decision, Mode, Policy};
pub use store::{Checkpoint, Entry, Listing, MAX_STATE, Search, Store};
pub use tensors::{MAX_RANK, MAX_TENSOR_NAME, Tensor, TensorRef, Tensors};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
