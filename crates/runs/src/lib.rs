//! The folders of training runs: named, locked, taken back if a run is refused, listed and sorted.
//!
//! A [`RunFolder`] is that of a run which begins or continues. [`list`] reads the runs in a folder, and [`newest`] finds
//! the one that was touched last.
#![forbid(unsafe_code)]

mod created;
mod error;
mod folder;
mod outside;
mod summary;

pub use created::shown;
pub use error::{Error, Result};
pub use folder::{HISTORY_FILE, RUNS, RunFolder, is_locked, name_of, newest};
pub use outside::folder_must_exist;
pub use summary::{RunSummary, SortKey, list};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
