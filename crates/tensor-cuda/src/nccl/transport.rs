//! How emulated GPUs send each other numbers: within a process, or between processes through files.

use super::calls::UniqueId;
use crate::lock::lock;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// The messages between ranks, in the order of their sending. A message that can't be delivered is lost, as
/// on a network: its receiver waits until its time-out.
pub(super) trait Transport: Send + Sync {
    /// A rank has come.
    fn join(&self, rank: usize);

    /// How many have.
    fn joined(&self) -> usize;

    /// A rank has aborted.
    fn leave(&self, rank: usize);

    /// The first rank that aborted.
    fn gone(&self) -> Option<usize>;

    fn send(&self, from: usize, to: usize, numbers: &[f32]);

    /// Whether there is a message to take.
    fn waits(&self, from: usize, to: usize) -> bool;

    fn take(&self, from: usize, to: usize) -> Option<Vec<f32>>;
}

/// Between threads.
#[derive(Default)]
pub(super) struct MemoryTransport(Mutex<Letters>);

#[derive(Default)]
struct Letters {
    joined: usize,
    gone: Option<usize>,
    /// By sender and receiver.
    under_way: HashMap<(usize, usize), VecDeque<Vec<f32>>>,
}

impl Transport for MemoryTransport {
    fn join(&self, _rank: usize) {
        lock(&self.0).joined += 1;
    }

    fn joined(&self) -> usize {
        lock(&self.0).joined
    }

    fn leave(&self, rank: usize) {
        lock(&self.0).gone.get_or_insert(rank);
    }

    fn gone(&self) -> Option<usize> {
        lock(&self.0).gone
    }

    fn send(&self, from: usize, to: usize, numbers: &[f32]) {
        lock(&self.0).under_way.entry((from, to)).or_default().push_back(numbers.to_vec());
    }

    fn waits(&self, from: usize, to: usize) -> bool {
        lock(&self.0).under_way.get(&(from, to)).is_some_and(|letters| !letters.is_empty())
    }

    fn take(&self, from: usize, to: usize) -> Option<Vec<f32>> {
        lock(&self.0).under_way.get_mut(&(from, to))?.pop_front()
    }
}

/// Between processes: a file a message, in a folder whose path is the group's id. Like NCCL, it does not
/// notice a dead process.
pub(super) struct FolderTransport {
    path: PathBuf,
    /// The numbers of messages that each rank has sent to each other, and of those taken, in this process.
    sent: Mutex<HashMap<(usize, usize), usize>>,
    taken: Mutex<HashMap<(usize, usize), usize>>,
}

impl FolderTransport {
    /// The id of a group: a new folder.
    pub(super) fn draw() -> Result<UniqueId, String> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let path = std::env::temp_dir().join(format!("towers-transport-{}-{time}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("no transport in {}: {error}", path.display()))?;
        let (text, mut id) = (path.to_string_lossy().into_owned(), [0; UniqueId::BYTES]);
        match id.get_mut(..text.len()) {
            Some(room) => room.copy_from_slice(text.as_bytes()),
            None => return Err(format!("the path {text} is too long for an id")),
        }
        Ok(UniqueId::from_bytes(id))
    }

    /// The folder of a group.
    pub(super) fn of(id: &UniqueId) -> Result<FolderTransport, String> {
        let text = String::from_utf8_lossy(id.as_bytes()).trim_end_matches('\0').to_owned();
        let path = PathBuf::from(text);
        if !path.is_absolute() || !path.is_dir() {
            return Err("this id is of no group of emulated GPUs".into());
        }
        Ok(FolderTransport { path, sent: Mutex::default(), taken: Mutex::default() })
    }

    fn letter(&self, from: usize, to: usize, number: usize) -> PathBuf {
        self.path.join(format!("{from}-{to}-{number}"))
    }

    fn next(&self, from: usize, to: usize) -> PathBuf {
        let number = lock(&self.taken).get(&(from, to)).copied().unwrap_or_default();
        self.letter(from, to, number)
    }

    /// A file that is complete, or not there.
    fn put(&self, path: &Path, bytes: &[u8]) {
        let new = path.with_extension("new");
        let _ = fs::write(&new, bytes).and_then(|()| fs::rename(new, path));
    }
}

impl Transport for FolderTransport {
    fn join(&self, rank: usize) {
        self.put(&self.path.join(format!("joined-{rank}")), b"");
    }

    fn joined(&self) -> usize {
        (0..).take_while(|rank| self.path.join(format!("joined-{rank}")).exists()).count()
    }

    fn leave(&self, rank: usize) {
        self.put(&self.path.join("gone"), rank.to_string().as_bytes());
    }

    fn gone(&self) -> Option<usize> {
        fs::read_to_string(self.path.join("gone")).ok()?.parse().ok()
    }

    fn send(&self, from: usize, to: usize, numbers: &[f32]) {
        let mut sent = lock(&self.sent);
        let number = sent.entry((from, to)).or_default();
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.put(&self.letter(from, to, *number), &bytes);
        *number += 1;
    }

    fn waits(&self, from: usize, to: usize) -> bool {
        self.next(from, to).exists()
    }

    fn take(&self, from: usize, to: usize) -> Option<Vec<f32>> {
        let path = self.next(from, to);
        let bytes = fs::read(&path).ok()?;
        let _ = fs::remove_file(path);
        *lock(&self.taken).entry((from, to)).or_default() += 1;
        let (numbers, _) = bytes.as_chunks::<4>();
        Some(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

impl Drop for FolderTransport {
    /// The first rank to finish leaves a note. The last one removes the folder.
    fn drop(&mut self) {
        self.put(&self.path.join(format!("done-{}-{:p}", std::process::id(), self)), b"");
        let count = |prefix: &str| {
            let names =
                fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.file_name());
            names.filter(|name| name.to_string_lossy().starts_with(prefix)).count()
        };
        if count("done-") >= count("joined-") {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
