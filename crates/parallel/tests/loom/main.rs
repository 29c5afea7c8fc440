//! Threads that wait for each other, in every order in which they can run.
//!
//! [loom](https://docs.rs/loom) runs each test once for every order of its locks, waits and notifications, and
//! fails a test in which all threads wait. The files of the crate are compiled here with loom's locks.

// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]
// Not all of the crate takes part.
#![allow(dead_code)]

#[path = "../../src/collective.rs"]
mod collective;
mod orders;
#[path = "../../src/sum_tree.rs"]
mod sum_tree;

#[path = "../../src/local"]
mod local {
    pub(crate) mod abort;
    pub(crate) mod across;
    pub(crate) mod barrier;
    pub(crate) mod collective;

    /// Nothing looks for threads that hang: loom finds them.
    pub(crate) mod hangs {
        pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
            wait()
        }

        pub(crate) use waiting as waiting_outside;
    }
}

#[path = "../../src/pipeline"]
mod pipeline {
    pub(crate) mod link;
}

/// Loom's locks.
mod system {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
}

use collective::{Collective, Nodes};
use sum_tree::SumTree;
use towers_parallel::{Error, Result, slice_batch};
