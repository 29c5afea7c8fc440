//! Collectives between GPUs by NCCL: of threads, of processes, of machines.
//!
//! NVIDIA's library waits for ever for a rank that is gone. Here every wait is bounded: calls return at once
//! and are polled, and every wait of the host for the device is checked as long as there is a
//! [`Communicator`]. If another rank fails, or is silent for longer than [`Join::patience`], the communicator
//! ends, and every later call fails.
//!
//! ```no_run
//! use std::time::Duration;
//! use towers_program::{Backend, Span};
//! use towers_tensor_cuda::nccl::{Communicator, Join, unique_id};
//! use towers_tensor_cuda::{Cuda, Options};
//!
//! // A group of one; further ranks would join with the same id, each on a GPU of its own.
//! let cuda = Cuda::new(Options::default())?;
//! let join = Join { id: unique_id()?, rank: 0, world: 1, patience: Duration::from_secs(60), failed: None };
//! let mut communicator = Communicator::join(&cuda, join)?;
//! let mut data = cuda.alloc(3)?;
//! communicator.all_reduce_sum(&mut data, Span::new(0, 3))?;
//! # Ok::<(), towers_program::Error>(())
//! ```

mod calls;
mod communicator;
#[cfg(feature = "emulation")]
mod emulated;
mod in_order;
mod installed;
mod session;
#[cfg(test)]
mod tests;
#[cfg(feature = "emulation")]
mod transport;
#[cfg(feature = "emulation")]
mod wire;

pub use calls::UniqueId;
pub use communicator::{Communicator, HostBarrier, Joining};
#[cfg(feature = "emulation")]
pub use emulated::emulated;
pub use installed::{available, unique_id};
pub use session::{Failed, Join};
