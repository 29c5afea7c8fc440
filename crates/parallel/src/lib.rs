#![doc = include_str!("../README.md")]

mod collective;
mod error;
mod exchanges;
mod local;
mod mpi;
mod nccl;
mod pipeline;
mod shards;
mod sum_tree;
mod system;
mod weights;

pub use collective::{Collective, Nodes, Queued};
pub use error::{Error, Result};
pub use exchanges::{Exchanges, add_run};
pub use local::{Local, Replica, run_replicas};
pub use mpi::{Mpi, MpiOptions, end_failed_job};
pub use nccl::{Nccl, NcclProcess};
pub use pipeline::{Pass, Stage, balance, in_flight, one_forward_one_backward, run_stages};
pub use shards::{Shards, slice_batch};
pub use sum_tree::SumTree;
pub use weights::Weights;
