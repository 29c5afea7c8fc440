//! Data parallelism: batch slicing, replicas on threads, collectives with a fixed summing order.
//!
//! Every replica (a *tower* in Keras' tutorials) runs the same body on its own device, with its own slice of
//! every batch. Replicas exchange data through a [`Collective`]. Gradients are divided by the global sample
//! count before they are summed, so uneven slices and a short last batch weigh every sample alike. The sum is
//! taken along a fixed tree, so a run repeats bit for bit.
//!
//! ```
//! use parallel::{run_replicas, slice_batch};
//! use program::Span;
//!
//! // Three replicas on one machine add up their numbers.
//! let devices = vec![tensor_cpu::device(1); 3];
//! let sums = run_replicas(&devices, |mut replica| {
//!     let device = replica.device.clone();
//!     let mut data = device.alloc(2)?;
//!     let own = slice_batch(100, replica.world(), replica.rank());
//!     device.upload(&[1.0, own.len() as f32], &mut data, 0)?;
//!     replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 2))?;
//!     Ok::<_, parallel::Error>(data.to_vec(&device, 0, 2)?)
//! })?;
//! assert_eq!(sums, [[3.0, 100.0]; 3]);
//! # Ok::<(), parallel::Error>(())
//! ```
//!
//! [`Shards`] cut every batch in the same way for any number of replicas. With a [`SumTree`] over them, results
//! don't depend on the number of replicas.
//!
//! Replicas of unequal speed take unequal slices, by [`Weights`] that are given or measured.
//!
//! Replicas with a GPU each add up by [`Nccl`], replicas that share a GPU from device to device, and all
//! others in host memory. [`run_replicas`] chooses.
//!
//! Model parallelism: [`run_stages`] runs pipelines of [`Stage`]s, each with some consecutive layers.
//! [`balance`] chooses the cuts, and [`one_forward_one_backward`] the order of each stage's micro-batches.
//!
//! A process finds its rank by [`cluster`], and the other processes by [`rendezvous`].

mod abort;
mod agreement;
mod balance;
mod barrier;
pub mod cluster;
mod collective;
mod error;
mod exchanges;
mod gather;
mod hangs;
mod link;
mod local;
mod members;
mod mpi;
mod nccl;
mod on_device;
mod panics;
pub mod rendezvous;
mod replica;
mod replicas;
mod schedule;
mod shards;
mod slice;
mod stages;
mod sum_tree;
mod system;
mod weights;

pub use agreement::Agreement;
pub use balance::balance;
pub use collective::{Collective, Nodes, Queued};
pub use error::{Error, Result};
pub use exchanges::{Exchanges, add_run};
pub use gather::gather_numbers;
pub use local::Local;
pub use mpi::{Mpi, MpiOptions, end_failed_job};
pub use nccl::{Nccl, NcclProcess};
pub use replica::Replica;
pub use replicas::run_replicas;
pub use schedule::{Pass, in_flight, one_forward_one_backward};
pub use shards::Shards;
pub use slice::slice_batch;
pub use stages::{Stage, run_stages};
pub use sum_tree::SumTree;
pub use weights::Weights;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
