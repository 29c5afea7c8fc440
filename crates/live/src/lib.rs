#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
#[cfg(feature = "serve")]
pub mod page;
#[cfg(feature = "serve")]
pub mod prometheus;
#[cfg(feature = "serve")]
mod serve;
mod status;
#[cfg(feature = "tui")]
pub mod tui;

pub use error::{Error, Result};
#[cfg(feature = "serve")]
pub use serve::{Page, Server};
pub use status::{LiveStatus, RunStatus};
