//! Whole files: replaced atomically, written durably, read with a bound.
//!
//! [`write()`] and [`replace`] give a file a new content. A reader finds the whole old or the whole new one, also
//! when the process is killed in between. [`read_text`] reads a file of bounded size. Every [`Error`] names the
//! action, the path and the cause.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run/status.json");
//! towers_files::write(&path, b"{}")?;
//! towers_files::sync_parent(&path)?; // the name is durable now, as the content already was
//! assert_eq!(towers_files::read_text(&path)?, "{}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod durable;
mod error;
mod regular;
mod whole;

pub use durable::{create_folders, sync_parent, unique_name};
pub use error::Error;
pub use regular::{check_regular, open_regular, read_text};
pub use whole::{replace, write, write_output};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
