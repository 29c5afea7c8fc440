//! The replicas of one process: a thread for each, how they exchange data, wait for each other, and end.

pub(crate) mod abort;
pub(crate) mod across;
pub(crate) mod barrier;
mod collective;
pub(crate) mod hangs;
pub(crate) mod members;
#[cfg(feature = "cuda")]
pub(crate) mod on_device;
pub(crate) mod replicas;

pub use across::{Across, Bring, Take, Transport};
pub use collective::Local;
pub use members::Members;
pub use replicas::{Replica, run_members};
