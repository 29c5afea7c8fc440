//! What threads and processes need of the system: locks, time, threads, connections.
//!
//! Two test programs compile the files of this crate with another module in its place: `tests/loom` with
//! loom's locks, `tests/simulation` with a simulated network.

pub(crate) use std::net::{TcpListener, TcpStream};
pub(crate) use std::sync::mpsc;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::thread::{Builder, JoinHandle, sleep};
pub(crate) use std::time::Instant;
