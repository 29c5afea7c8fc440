//! Collectives between GPUs by NCCL: of threads, of processes, of machines.
//!
//! NVIDIA's library waits without end for a rank that is gone. Here nothing does: calls return at once and are followed, and
//! every wait of the host for the device is looked after as long as there is a [`Communicator`]. What a rank learns of another
//! that failed, or that it kept silent for longer than [`Join::patience`], ends the communicator and every later call.
//!
//! ```no_run
//! use std::time::Duration;
//! use program::{Backend, Span};
//! use tensor_cuda::nccl::{Communicator, Join, unique_id};
//! use tensor_cuda::{Cuda, Options};
//!
//! // A group of one; further ranks would join with the same id, each on a GPU of its own.
//! let cuda = Cuda::new(Options::default())?;
//! let join = Join { id: unique_id()?, rank: 0, world: 1, patience: Duration::from_secs(60), failed: None };
//! let mut communicator = Communicator::join(&cuda, join)?;
//! let mut data = cuda.alloc(3)?;
//! communicator.all_reduce_sum(&mut data, Span::new(0, 3))?;
//! # Ok::<(), program::Error>(())
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

pub use calls::UniqueId;
pub use communicator::{Communicator, HostBarrier, Joining};
#[cfg(feature = "emulation")]
pub use emulated::emulated;
pub use installed::{available, unique_id};
pub use session::{Failed, Join};
