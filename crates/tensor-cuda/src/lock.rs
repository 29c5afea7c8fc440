//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing panics while it holds one of our locks, so a poisoned one is still in order.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
