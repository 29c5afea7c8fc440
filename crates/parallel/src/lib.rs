#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod collective;
mod error;
mod exchanges;
mod graph_capture;
mod local;
#[cfg(feature = "cuda")]
mod nccl;
mod pipeline;
mod shards;
mod sum_tree;
mod system;
mod weights;

pub use collective::{Collective, Nodes, Queued, equal_part};
pub use error::{Error, Result};
pub use exchanges::{Exchanges, add_run};
pub use graph_capture::{CapturePhase, GraphCapture};
pub use local::{Across, Bring, Local, Members, Replica, Take, Transport, run_members};
#[cfg(feature = "cuda")]
pub use nccl::{Nccl, NcclGroup, NcclJoin, NcclProcess};
pub use pipeline::{Pass, Stage, balance, in_flight, one_forward_one_backward, run_replicas, run_stages};
pub use shards::{Shards, slice_batch};
pub use sum_tree::SumTree;
pub use weights::Weights;
