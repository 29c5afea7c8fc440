use crate::fingerprint;
use crate::folders::{self, Folders, Skipped};
use crate::lock::Lock;
use crate::mark::{self, Mark};
use crate::name::{self, Hidden};
use crate::{Error, Policy, Result, TensorRef, Tensors, format};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest state that is written or read, in bytes of JSON.
pub const MAX_STATE: u64 = 64 << 20;

/// A checkpoint read from the disk, every byte of it verified.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checkpoint<S> {
    /// The name it was saved under.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Its tensors, bit for bit as they were saved, in the same order.
    pub tensors: Tensors,
    /// The state that was saved with them.
    pub state: S,
}

impl<S> Checkpoint<S> {
    /// The safetensors file in its folder.
    pub fn tensors_file(&self) -> PathBuf {
        self.path.join(mark::TENSORS)
    }
}

/// A completed checkpoint in a list; its files are not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name it was saved under.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// The place in the order of saving: a greater number was saved later.
    pub sequence: u64,
    /// The length of its tensors and state on the disk, in bytes.
    pub bytes: u64,
}

/// All checkpoints of a store.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The completed ones, oldest first.
    pub entries: Vec<Entry>,
    /// Folders that are no completed checkpoints.
    pub skipped: Vec<Skipped>,
}

/// The outcome of a search for the newest valid checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub struct Search<S> {
    /// The newest valid one.
    pub found: Option<Checkpoint<S>>,
    /// The skipped ones: every incomplete folder, and every newer checkpoint that failed. Tell the user:
    /// nothing found but something skipped is not a fresh start.
    pub skipped: Vec<Skipped>,
}

/// A folder of checkpoints, each a folder.
///
/// Several threads and processes may use one store. A save excludes other saves and loads by a lock on a
/// hidden file, where the file system has locks and the file can be made. See the [crate's page](crate) for
/// an example.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in `root`, which the first save creates.
    ///
    /// What a killed writer left half-done is cleaned up, if no other writer is at work now.
    ///
    /// # Errors
    /// When `root` is there but is no folder.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        match fs::metadata(&root) {
            Ok(metadata) if !metadata.is_dir() => {
                let source = std::io::ErrorKind::NotADirectory.into();
                return Err(Error::io("open the store", &root)(source));
            }
            Ok(_) => {
                // A store that is read-only, or busy, is not cleaned up. In a clean one no lock is left.
                if folders::has_leftovers(&root)
                    && let Some(_lock) = Lock::at_once(&root)
                {
                    folders::sweep(&root);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("open the store", &root)(error)),
        }
        Ok(Store { root })
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Saves a checkpoint under `name` and gives its folder; it is on the disk when this returns.
    ///
    /// A checkpoint of the same name is replaced: at every moment, even if the machine stops, the old one or
    /// the new one is there, whole. JSON has no numbers that aren't finite: a NaN in `state` is stored as
    /// `null`, which reads back into an `Option` as `None` and into an `f64` not at all. Such values belong
    /// into the tensors, which keep every bit. The metadata of [`Tensors`] is not stored: use the state.
    ///
    /// # Errors
    /// When the name, a tensor or the state can't be stored, or when the disk refuses: then nothing of it is
    /// left behind, and all earlier checkpoints are as they were.
    pub fn save<'a, S: Serialize + ?Sized>(
        &self,
        name: &str,
        tensors: impl IntoIterator<Item = TensorRef<'a>>,
        state: &S,
    ) -> Result<PathBuf> {
        name::check(name)?;
        let target = self.root.join(name);
        let tensors: Vec<_> = tensors.into_iter().collect();
        let json = encode(&target.join(mark::STATE), state)?;
        self.create_root()?;
        let _lock = self.lock()?;
        let entries = self.list()?.entries;
        if entries.iter().any(|entry| entry.name != name && entry.name.eq_ignore_ascii_case(name)) {
            let why = "another checkpoint's name differs only in capitals, and some systems have one folder for both";
            return Err(Error::Name { name: name.to_owned(), why });
        }
        let sequence = entries.last().map_or(1, |newest| newest.sequence.saturating_add(1));

        let folder = self.root.join(Hidden::Temporary.folder(name));
        fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
        let saved =
            fill(&folder, sequence, &tensors, &json).and_then(|()| folders::put(&self.root, &folder, name));
        if saved.is_err() {
            // The error is on its way to the caller; this is the best that can be done beside it.
            let _ = folders::delete(&folder);
        }
        saved.map(|()| target)
    }

    /// Reads and verifies the checkpoint `name`.
    ///
    /// # Errors
    /// When there is none, when it is damaged, or when its state is no `S`.
    pub fn load<S: DeserializeOwned>(&self, name: &str) -> Result<Checkpoint<S>> {
        name::check(name)?;
        let _lock = Lock::share(&self.root);
        let folders = Folders::read(&self.root)?;
        let Some(folder) = folders.checkpoints.get(name) else {
            return Err(Error::NotFound { name: name.to_owned(), path: self.root.clone() });
        };
        load(name, folder, &Mark::read(folder)?)
    }

    /// The completed checkpoints, oldest first, by their completion marks alone.
    ///
    /// # Errors
    /// When the store's folder can't be read; one that doesn't exist yet is empty.
    pub fn list(&self) -> Result<Listing> {
        let Folders { checkpoints, skipped } = Folders::read(&self.root)?;
        let mut listing = Listing { entries: Vec::new(), skipped };
        for (name, path) in checkpoints {
            match Mark::read(&path) {
                Ok(mark) => {
                    listing.entries.push(Entry { name, sequence: mark.sequence, bytes: mark.bytes(), path })
                }
                Err(why) => listing.skipped.push(Skipped { path, why }),
            }
        }
        listing.entries.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        Ok(listing)
    }

    /// Reads the checkpoint saved last, or the last before it that is whole and has an `S` for a state.
    ///
    /// # Errors
    /// When the store's folder can't be read. A damaged checkpoint is no error, but is reported.
    pub fn newest_valid<S: DeserializeOwned>(&self) -> Result<Search<S>> {
        let _lock = Lock::share(&self.root);
        let Listing { entries, mut skipped } = self.list()?;
        for Entry { name, path, .. } in entries.into_iter().rev() {
            match Mark::read(&path).and_then(|mark| load(&name, &path, &mark)) {
                Ok(checkpoint) => return Ok(Search { found: Some(checkpoint), skipped }),
                Err(why) => skipped.push(Skipped { path, why }),
            }
        }
        Ok(Search { found: None, skipped })
    }

    /// Removes the checkpoints that `policy` doesn't keep, and gives their names; `best` is never removed.
    ///
    /// Only checkpoints with names of [`epoch_name`](crate::epoch_name) and [`step_name`](crate::step_name) are counted
    /// and removed. All others stay, such as copies that somebody made, and folders that are no completed checkpoints.
    ///
    /// # Errors
    /// When the store can't be read, or a folder can't be removed.
    pub fn prune(&self, policy: &Policy, best: Option<&str>) -> Result<Vec<String>> {
        if policy.keep_last.is_none() || !self.root.is_dir() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let entries = self.list()?.entries;
        let names: Vec<String> =
            entries.iter().map(|entry| entry.name.clone()).filter(|name| name::is_generated(name)).collect();
        let surplus = policy.surplus(&names, best);
        for entry in entries.iter().filter(|entry| surplus.contains(&entry.name.as_str())) {
            folders::remove(&self.root, &entry.name, &entry.path)?;
        }
        Ok(surplus.into_iter().map(str::to_owned).collect())
    }

    fn create_root(&self) -> Result<()> {
        if !self.root.is_dir() {
            towers_files::create_folders(&self.root)?;
        }
        Ok(())
    }

    /// Takes the lock and removes the leftovers of a dead writer.
    fn lock(&self) -> Result<Lock> {
        let lock = Lock::acquire(&self.root)?;
        if lock.is_exclusive() {
            folders::sweep(&self.root);
        }
        Ok(lock)
    }
}

/// Writes the files of a checkpoint into a new folder, the mark last.
fn fill(folder: &Path, sequence: u64, tensors: &[TensorRef<'_>], json: &[u8]) -> Result<()> {
    let tensors = fingerprint::create_tensors(&folder.join(mark::TENSORS), tensors, &BTreeMap::new())?;
    let state = fingerprint::create(&folder.join(mark::STATE), |out| out.write_all(json))?;
    Mark::new(sequence, tensors, state).write(folder)
}

/// The state as JSON that can be read again: neither too long nor too deep.
fn encode<S: Serialize + ?Sized>(path: &Path, state: &S) -> Result<Vec<u8>> {
    let unfit = |why: String| Error::State { path: path.to_path_buf(), why };
    let json = serde_json::to_vec_pretty(state).map_err(|error| unfit(error.to_string()))?;
    if json.len() as u64 > MAX_STATE {
        return Err(unfit(format!("it has {} bytes of JSON, more than {MAX_STATE}", json.len())));
    }
    // The parser's limit on depth is met now rather than on the day of the resume.
    serde_json::from_slice::<serde_json::Value>(&json).map_err(|error| unfit(error.to_string()))?;
    Ok(json)
}

fn load<S: DeserializeOwned>(name: &str, folder: &Path, mark: &Mark) -> Result<Checkpoint<S>> {
    // Both files are verified before either is parsed.
    let (mut tensors, tensors_len) = mark.open_verified(folder, mark::TENSORS)?;
    let (state, state_len) = mark.open_verified(folder, mark::STATE)?;
    let path = folder.join(mark::STATE);
    if state_len > MAX_STATE {
        let why = format!("it has {state_len} bytes, more than {MAX_STATE}");
        return Err(Error::State { path, why });
    }
    let mut json = Vec::with_capacity(state_len as usize);
    state.take(state_len).read_to_end(&mut json).map_err(Error::io("read", &path))?;
    let state =
        serde_json::from_slice(&json).map_err(|error| Error::State { path, why: error.to_string() })?;
    let tensors = format::read(&folder.join(mark::TENSORS), &mut tensors, tensors_len, |_| true)?;
    Ok(Checkpoint { name: name.to_owned(), path: folder.to_path_buf(), tensors, state })
}
