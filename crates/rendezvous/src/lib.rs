#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod agreement;
mod cluster;
mod error;
mod join;
mod system;

pub use agreement::Agreement;
pub use cluster::{Place, Source, discover, is_restarted, variable};
pub use error::{Error, Result};
pub use join::{ProcessGroup, Secret, Settings, Watchdog, connect, longest_silence};
