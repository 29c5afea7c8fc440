//! Conversations by files, for processes that see one folder and don't know where rank 0 is.
//!
//! Who comes makes a file in the job's [folder](super::folder) whose name nobody had before, and appends what it says; rank 0
//! finds the file and answers in another beside it. What is said is sealed as on a network, with nonces of both sides:
//! nothing of an earlier conversation passes for a new one, so files that are left behind do no harm.
//!
//! Who closes a conversation gives its file a name that says so, for the other side to read to the end and take away. The last
//! one to leave takes the folder away.

use super::channel::ReceiveError;
use super::folder::{create, token, within};
use super::stream::left;
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
/// What rank 0 holds while it lets others in.
const LOCK: &str = "first";

/// Where rank 0 finds who has come.
pub(super) struct FolderListener {
    folder: PathBuf,
    seen: HashSet<PathBuf>,
    looked: Option<Instant>,
    /// Held, so that no other rank 0 lets processes in here.
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
            // Some file systems of clusters know no locks.
            Err(TryLockError::Error(_)) => None,
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|end| end == ENDED) {
                // Nobody reads what is left of a conversation with an earlier rank 0.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(FolderListener { folder: folder.to_owned(), seen: HashSet::new(), looked: None, held })
    }

    /// The next one who has come.
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
    /// The file of one who was not seen before.
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
        // Not every system takes a file away that is open.
        drop(self.held.take());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// This machine's name, as far as a file's name can hold it.
fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.trim().chars().filter(fits).take(64).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Comes to rank 0.
pub(super) fn connect_in(folder: &Path) -> Result<Files> {
    let told = folder.join(format!("{}-{}.{FROM_OTHER}", machine(), token()?));
    within(folder, || create(&told))?;
    Ok(Files::new(told.with_extension(FROM_FIRST), told, "the same folder".into(), false))
}

/// A conversation in two files: each side appends to one, and reads the other as it grows.
#[derive(Clone)]
pub(super) struct Files {
    pair: Arc<Pair>,
    /// How much was read, and whether there was something to read.
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

    /// Of one that was killed there is nothing to see.
    pub(super) fn is_closed(&self) -> bool {
        ended(&self.pair.heard).exists()
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.pair.told)?.write_all(bytes)
    }

    pub(super) fn read_until(&mut self, mut bytes: &mut [u8], until: Instant) -> Result<(), ReceiveError> {
        while !bytes.is_empty() {
            // The end is asked for first: what was said before it is there then.
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

    /// Opened anew each time: file systems of clusters show what others wrote to who opens a file then.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let open = File::open(&self.pair.heard).or_else(|_| File::open(ended(&self.pair.heard)));
        let mut file = open?;
        self.seen = true;
        file.seek(SeekFrom::Start(self.read))?;
        file.read(bytes)
    }
}

/// The name of a file to which nothing more will be added.
fn ended(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ENDED);
    name.into()
}

impl Pair {
    /// Tells the other side that nothing more will come, and takes away what it said.
    fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = fs::rename(&self.told, ended(&self.told));
        let heard = fs::remove_file(&self.heard).or_else(|_| fs::remove_file(ended(&self.heard)));
        if heard.is_err() {
            // The other side never was, so it won't come back to read.
            let _ = fs::remove_file(ended(&self.told));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
        if let Some(folder) = self.told.parent() {
            // Only an empty one can be taken away so: the last one does.
            let _ = fs::remove_dir(folder);
        }
    }
}
