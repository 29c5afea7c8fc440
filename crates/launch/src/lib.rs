#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod channel;
mod error;
mod heard;
mod job;
mod launch;
mod launched;
mod launcher_death;
mod mpi;
mod processes;
mod run;
pub mod signals;
mod status;
mod worker;

pub use error::{Error, Result};
pub use launch::{End, Launch, MOST_PROCESSES};
pub use launched::{farewell, is_restarted_on_failure, on_orders, ready};
pub use launcher_death::{follow_launcher, is_launched};
pub use status::{BAD_USAGE, INCOMPLETE, INTERRUPTED};
pub use towers_rendezvous as rendezvous;
