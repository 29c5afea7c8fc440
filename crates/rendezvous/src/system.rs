//! The system calls for threads and processes: locks, time, threads, connections.
//!
//! `tests/simulation` compiles the files of this crate with a simulated network in its place.

pub(crate) use std::net::{TcpListener, TcpStream};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::sleep;
pub(crate) use std::time::Instant;

/// Starts a detached thread.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
