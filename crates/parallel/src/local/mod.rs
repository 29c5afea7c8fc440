//! The replicas of one process: a thread for each, how they exchange data, wait for each other, and end.

pub(crate) mod abort;
pub(crate) mod barrier;
mod collective;
pub(crate) mod hangs;
pub(crate) mod members;
pub(crate) mod on_device;
pub(crate) mod replicas;

pub use collective::Local;
pub use replicas::{Replica, run_replicas};
