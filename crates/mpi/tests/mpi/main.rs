//! Processes under mpirun: the same sums as threads, and faults of every kind end the whole job in bounded time.
//!
//! The ranks are this test program itself: mpirun starts its test `a_rank`, and the environment names their
//! role.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "../../../parallel/tests/everything.rs"]
#[allow(dead_code, reason = "not all of it takes part")]
mod everything;
mod faults;
mod headers;
mod hosts;
mod job;
mod network;
mod roles;
mod sums;

use towers_parallel::{Error, Nodes, Replica, SumTree, add_run, slice_batch};

/// The entry of every rank of a job. Without a job it does nothing.
#[test]
fn a_rank() {
    roles::play();
}
