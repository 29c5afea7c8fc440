//! One writer at a time in a store, without a trace left by a dead one.

use crate::file::open_own;
use crate::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LOCK: &str = ".lock";
/// Longer than any save or load should take that somebody else is busy with.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// The store's lock, held until this is dropped or the process ends, however it ends.
pub(crate) struct Lock {
    /// `None` where there are no locks.
    file: Option<File>,
}

impl Lock {
    /// Waits for the lock of the store in `folder`, for a writer.
    pub(crate) fn acquire(folder: &Path) -> Result<Lock> {
        let path = folder.join(LOCK);
        let file = open(&path).map_err(Error::io("open", &path))?;
        match wait(|| file.try_lock()) {
            Ok(()) => Ok(Lock { file: Some(file) }),
            // Some network file systems have no locks. Hidden names are unique without them.
            Err(TryLockError::Error(_)) => Ok(Lock { file: None }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::Busy { path: folder.to_path_buf(), seconds: PATIENCE.as_secs() })
            }
        }
    }

    /// Waits for the lock of a reader, which readers share. Without the lock a read is still safe, but a
    /// checkpoint during its replacement looks damaged. So a reader without it reads all the same.
    /// It makes no file: without one there has been no writer.
    pub(crate) fn share(folder: &Path) -> Lock {
        let file = open_own(&folder.join(LOCK)).ok().map(|(file, _)| file);
        Lock { file: file.filter(|file| wait(|| file.try_lock_shared()).is_ok()) }
    }

    /// The writer's lock if it can be had at once.
    pub(crate) fn at_once(folder: &Path) -> Option<Lock> {
        let file = open(&folder.join(LOCK)).ok()?;
        file.try_lock().ok()?;
        Some(Lock { file: Some(file) })
    }

    /// Whether no other process can be writing: not known where there are no locks.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}

fn open(path: &Path) -> io::Result<File> {
    towers_files::check_regular(path)?;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn wait(attempt: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}
