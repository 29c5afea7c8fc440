#![doc = include_str!("../README.md")]

mod abi;
mod communicator;
mod control;
mod exchange;
mod job;
mod library;
#[cfg(feature = "cuda")]
mod nccl;
mod options;
mod process;
mod thread;
mod transport;
mod worker;

pub use job::Mpi;
pub use options::MpiOptions;
pub use worker::end_failed_job;
