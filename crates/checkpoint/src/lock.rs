//! One writer at a time in a store, without a trace left by a dead one.

use crate::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LOCK: &str = ".lock";
/// Longer than any save should take that somebody else is busy with.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// The store's lock, held until this is dropped or the process ends, however it ends.
pub(crate) struct Lock {
    /// `None` where the file system knows no locks.
    file: Option<File>,
}

impl Lock {
    /// Waits for the lock of the store in `folder`.
    pub(crate) fn acquire(folder: &Path) -> Result<Lock> {
        let path = folder.join(LOCK);
        let file = open(&path).map_err(Error::io("open", &path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { file: Some(file) }),
                // Some network file systems have no locks. Hidden names are unique without them.
                Err(TryLockError::Error(_)) => return Ok(Lock { file: None }),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Busy { path: folder.to_path_buf(), seconds: PATIENCE.as_secs() });
                }
            }
        }
    }

    /// The lock if it can be had at once.
    pub(crate) fn try_acquire(folder: &Path) -> Option<Lock> {
        let file = open(&folder.join(LOCK)).ok()?;
        file.try_lock().ok()?;
        Some(Lock { file: Some(file) })
    }

    /// Whether nobody else can be writing: not known where there are no locks.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}
