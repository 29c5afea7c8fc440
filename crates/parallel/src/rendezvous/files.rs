//! Connections by files, for processes that share a folder and don't know rank 0's address.
//!
//! A process creates a file with a new name in the job's [folder](super::folder), and appends its messages.
//! Rank 0 finds the file and answers in another file beside it. Messages are encrypted as on a network, with
//! nonces of both sides. So messages of an earlier connection are not accepted in a new one, and left files
//! do no harm.
//!
//! To close a connection, a side renames its file. The other side reads it to the end and removes it. The
//! last process removes the folder.

use super::folder::{create, token, within};
use super::receive::{ReceiveError, left};
use crate::{Error, Result};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a file.
const PAUSE: Duration = Duration::from_millis(20);
const FROM_OTHER: &str = "in";
const FROM_FIRST: &str = "out";
const ENDED: &str = "end";
/// Rank 0 holds a lock on this file while it accepts connections.
const LOCK: &str = "first";

/// Rank 0's listener for connections in a folder.
pub(super) struct FolderListener {
    folder: PathBuf,
    seen: HashSet<PathBuf>,
    looked: Option<Instant>,
    /// The lock, so that only one rank 0 accepts connections here.
    held: Option<File>,
}

impl FolderListener {
    pub(super) fn open(folder: &Path) -> Result<FolderListener> {
        let path = folder.join(LOCK);
        let file = within(folder, || File::options().create(true).append(true).open(&path))?;
        let held = match file.try_lock() {
            Ok(()) => Some(file),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Rendezvous(format!(
                    "another rank 0 waits in {}: give each job a folder of its own",
                    folder.display()
                )));
            }
            // Some file systems of clusters have no locks.
            Err(TryLockError::Error(_)) => None,
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|end| end == ENDED) {
                // A remainder of a connection with an earlier rank 0.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(FolderListener { folder: folder.to_owned(), seen: HashSet::new(), looked: None, held })
    }

    /// The next connection.
    pub(super) fn accept(&mut self) -> Option<Files> {
        if self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return None;
        }
        let Some(came) = self.look() else {
            self.looked = Some(Instant::now());
            return None;
        };
        self.seen.insert(came.clone());
        let host = came.file_name()?.to_str()?.rsplit_once('-')?.0.to_owned();
        let told = came.with_extension(FROM_FIRST);
        create(&told).ok()?;
        Some(Files::new(came, told, host, true))
    }
}

impl FolderListener {
    /// The file of a new connection.
    fn look(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.folder).ok()?.flatten();
        let came = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        came.map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == FROM_OTHER) && !self.seen.contains(path))
    }
}

impl Drop for FolderListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(LOCK));
        // Some systems can't remove an open file.
        drop(self.held.take());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// This machine's name, without characters that a file's name can't hold.
fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.trim().chars().filter(fits).take(64).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Connects to rank 0.
pub(super) fn connect_in(folder: &Path) -> Result<Files> {
    let told = folder.join(format!("{}-{}.{FROM_OTHER}", machine(), token()?));
    within(folder, || create(&told))?;
    Ok(Files::new(told.with_extension(FROM_FIRST), told, "the same folder".into(), false))
}

/// A connection by two files: each side appends to one, and reads the other as it grows.
#[derive(Clone)]
pub(super) struct Files {
    pair: Arc<Pair>,
    /// The bytes read so far, and whether the file existed.
    read: u64,
    seen: bool,
}

struct Pair {
    heard: PathBuf,
    told: PathBuf,
    host: String,
    closed: AtomicBool,
}

impl Files {
    fn new(heard: PathBuf, told: PathBuf, host: String, seen: bool) -> Files {
        Files { pair: Arc::new(Pair { heard, told, host, closed: AtomicBool::new(false) }), read: 0, seen }
    }

    pub(super) fn host(&self) -> &str {
        &self.pair.host
    }

    pub(super) fn close(&self) {
        self.pair.close();
    }

    /// A killed process leaves no trace.
    pub(super) fn is_closed(&self) -> bool {
        ended(&self.pair.heard).exists()
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.pair.told)?.write_all(bytes)
    }

    pub(super) fn read_until(&mut self, mut bytes: &mut [u8], until: Instant) -> Result<(), ReceiveError> {
        while !bytes.is_empty() {
            // The end is checked first: then all bytes before it can be read.
            let ended = ended(&self.pair.heard).exists();
            match self.read(bytes) {
                Ok(0) if ended => return Err(ReceiveError::Gone),
                Ok(0) => std::thread::sleep(left(until)?.min(PAUSE)),
                Ok(count) => {
                    self.read += count as u64;
                    bytes = &mut bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.seen => {
                    std::thread::sleep(left(until)?.min(PAUSE));
                }
                Err(_) => return Err(ReceiveError::Gone),
            }
        }
        Ok(())
    }

    /// Opened anew each time: file systems of clusters show new bytes to a new reader.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let open = File::open(&self.pair.heard).or_else(|_| File::open(ended(&self.pair.heard)));
        let mut file = open?;
        self.seen = true;
        file.seek(SeekFrom::Start(self.read))?;
        file.read(bytes)
    }
}

/// The name of a complete file.
fn ended(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ENDED);
    name.into()
}

impl Pair {
    /// Marks this side's file as complete, and removes the other side's.
    fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = fs::rename(&self.told, ended(&self.told));
        let heard = fs::remove_file(&self.heard).or_else(|_| fs::remove_file(ended(&self.heard)));
        if heard.is_err() {
            // The other side never existed, so it won't read this file.
            let _ = fs::remove_file(ended(&self.told));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
        if let Some(folder) = self.told.parent() {
            // Only an empty folder can be removed, so the last process does it.
            let _ = fs::remove_dir(folder);
        }
    }
}
