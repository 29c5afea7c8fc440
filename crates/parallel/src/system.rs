//! The locks of threads. `tests/loom` compiles the files of this crate with loom's in their place.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
