//! Replicas that are pipelines: the cuts of a network, its stages, the links between them, and the order of
//! their passes.

mod balance;
mod link;
mod schedule;
mod stages;

pub use balance::balance;
pub use schedule::{Pass, in_flight, one_forward_one_backward};
pub use stages::{Stage, run_replicas, run_stages};
