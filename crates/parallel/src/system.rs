//! What threads and processes need of the system: locks, time, threads, connections.
//!
//! Two test programs compile the files of this crate with another module in its place: `tests/loom` with
//! loom's locks, `tests/simulation` with a simulated network.

pub(crate) use std::net::{TcpListener, TcpStream};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::thread::sleep;
pub(crate) use std::time::Instant;

/// Starts a detached thread.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
