//! Conversations by files, for processes that see one folder and don't know where rank 0 is.
//!
//! The folder of a start of a job belongs to one user, and nobody else may look into it. Who comes makes a file there whose name
//! nobody had before, and appends what it says; rank 0 finds the file and answers in another beside it. What is said is
//! sealed as on a network, with nonces of both sides: nothing of an earlier conversation passes for a new one, so files that are
//! left behind do no harm.
//!
//! Who closes a conversation gives its file a name that says so, for the other side to read to the end and take away. The last
//! one to leave takes the folder away.

use super::channel::Silence;
use super::digest;
use super::secret::random;
use super::stream::left;
use crate::cluster::Place;
use crate::{Error, Result};
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
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
const DOOR: &str = "first";
const TRIES: usize = 100;

/// The folder of this start of a job, below the one that all processes see.
pub(super) fn folder_of(shared: &Path, place: &Place) -> PathBuf {
    shared.join(name(place, place.restart))
}

fn name(place: &Place, restart: u32) -> String {
    let job = digest(place.job.as_deref().unwrap_or_default().as_bytes());
    let job: String = job.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("towers-{job}-{restart}")
}

/// Takes away what earlier starts of the job left, whose processes the launcher has ended.
pub(super) fn clear_earlier(shared: &Path, place: &Place) {
    for restart in place.restart.saturating_sub(10)..place.restart {
        let folder = shared.join(name(place, restart));
        if private(&folder).is_ok() {
            // What can't be taken away does no harm.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Makes the folder, or finds that it is there and nobody else's.
fn enter(folder: &Path) -> Result<()> {
    let failed =
        |why: String| Error::Rendezvous(format!("processes can't meet in {}: {why}", folder.display()));
    // Who leaves may take it away at this moment.
    for _ in 0..TRIES {
        match private_builder().create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error.to_string()));
            }
            _ => {}
        }
        match private(folder) {
            Err(_) if !folder.exists() => {}
            checked => return checked.map_err(failed),
        }
    }
    Err(failed("it is taken away again and again".into()))
}

/// Makes a file in the folder, which is made too if there is none.
fn within(folder: &Path, make: impl Fn() -> io::Result<File>) -> Result<File> {
    let mut tries = 0..TRIES;
    loop {
        enter(folder)?;
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
            made => {
                let failed = |error| format!("can't write to {}: {error}", folder.display());
                return made.map_err(|error| Error::Rendezvous(failed(error)));
            }
        }
    }
}

/// Whether it is a folder of this user that nobody else may enter.
fn private(folder: &Path) -> Result<(), String> {
    let about = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !about.is_dir() {
        return Err("it is no folder".into());
    }
    check_owner(folder, &about)
}

#[cfg(unix)]
fn private_builder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn private_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Compares the folder's owner with that of a file that this process makes there, as the file system sees it.
#[cfg(unix)]
fn check_owner(folder: &Path, about: &Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    if about.mode() & 0o077 != 0 {
        return Err(format!("others may enter it (mode {:o}); take it away", about.mode() & 0o777));
    }
    let trial = folder.join(format!("trial-{}", token().map_err(|error| error.to_string())?));
    let own = create(&trial).and_then(|file| file.metadata());
    let _ = fs::remove_file(&trial);
    match own {
        Ok(own) if own.uid() == about.uid() => Ok(()),
        Ok(_) => Err("it is another user's".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(unix))]
fn check_owner(_: &Path, _: &Metadata) -> Result<(), String> {
    Ok(())
}

/// A new file that only this user may read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn token() -> Result<String> {
    Ok(random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// This machine's name, as far as a file's name can hold it.
fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.trim().chars().filter(fits).take(64).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// Where rank 0 finds who has come.
pub(super) struct Door {
    folder: PathBuf,
    seen: HashSet<PathBuf>,
    looked: Option<Instant>,
    /// Held, so that no other rank 0 lets processes in here.
    _held: Option<File>,
}

impl Door {
    pub(super) fn open(folder: &Path) -> Result<Door> {
        let path = folder.join(DOOR);
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
        Ok(Door { folder: folder.to_owned(), seen: HashSet::new(), looked: None, _held: held })
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

impl Door {
    /// The file of one who was not seen before.
    fn look(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.folder).ok()?.flatten();
        let came = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        came.map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == FROM_OTHER) && !self.seen.contains(path))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(DOOR));
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Comes to rank 0.
pub(super) fn knock(folder: &Path) -> Result<Files> {
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

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.pair.told)?.write_all(bytes)
    }

    pub(super) fn read_until(&mut self, mut bytes: &mut [u8], until: Instant) -> Result<(), Silence> {
        while !bytes.is_empty() {
            // The end is asked for first: what was said before it is there then.
            let ended = ended(&self.pair.heard).exists();
            match self.read(bytes) {
                Ok(0) if ended => return Err(Silence::Gone),
                Ok(0) => std::thread::sleep(left(until)?.min(PAUSE)),
                Ok(count) => {
                    self.read += count as u64;
                    bytes = &mut bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.seen => {
                    std::thread::sleep(left(until)?.min(PAUSE));
                }
                Err(_) => return Err(Silence::Gone),
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
