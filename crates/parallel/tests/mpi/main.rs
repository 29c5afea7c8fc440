//! Processes under mpirun: the same sums as threads, and faults of every kind end the whole job in bounded time.
//!
//! The ranks are this test program itself: mpirun starts its test `a_rank`, and the environment names their
//! role.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]
#![forbid(unsafe_code)]

#[cfg(feature = "mpi")]
mod faults;
#[cfg(feature = "mpi")]
mod hosts;
#[cfg(feature = "mpi")]
mod job;
#[cfg(feature = "mpi")]
mod network;
#[cfg(feature = "mpi")]
mod roles;
#[cfg(feature = "mpi")]
mod sums;

/// The entry of every rank of a job. Without a job it does nothing.
#[cfg(feature = "mpi")]
#[test]
fn a_rank() {
    roles::play();
}

#[cfg(not(feature = "mpi"))]
#[test]
fn mpi() {
    println!("SKIPPED: built without the feature `mpi`; see `cargo xtask test mpi`");
}
