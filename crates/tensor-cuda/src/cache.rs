//! Compiled kernels on disk, so that a second start compiles nothing.
//!
//! An entry is a file named after a digest of source, headers, options, architecture and compiler. It holds a
//! digest of its content too, so a truncated or altered file is ignored. Disk errors are ignored: a kernel
//! that can't be read is compiled, and one that can't be written is compiled again next time.

use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The first bytes of an entry, to be changed with its layout: these, a SHA-256, the content.
const MAGIC: &[u8; 16] = b"towers kernel 1\n";
const DIGEST: usize = 32;
const ENDING: &str = "kernel";

/// So many entries are kept: the kernels of several versions, number formats and kinds of GPU.
const MOST: usize = 256;

/// Unfinished files of a process that was killed are removed after this time.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The folder of compiled kernels and of checked GPUs: `TOWERS_CACHE_DIR`, or `towers` in the user's cache folder. `None` for a user
/// without a home.
pub fn folder() -> Option<PathBuf> {
    folder_of(|name| std::env::var_os(name))
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The specification of XDG_CACHE_HOME has relative paths ignored.
    let user = || path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let home = || path("HOME").or_else(|| path("USERPROFILE")).map(|home| home.join(".cache"));
    path("TOWERS_CACHE_DIR").or_else(|| Some(user().or_else(home)?.join("towers")))
}

/// The inputs of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// A readable part of the file's name.
    label: String,
    digest: [u8; DIGEST],
}

impl Key {
    /// The key of these parts. Each part counts by itself: moving a byte from one to the next makes another
    /// key.
    pub(crate) fn new<'a>(label: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key { label: label.into(), digest: hash.finalize().into() }
    }

    /// The digest in hexadecimal digits.
    pub(crate) fn hex(&self) -> String {
        self.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn file_name(&self) -> String {
        format!("{}-{}.{ENDING}", self.label, self.hex())
    }
}

/// A folder of compiled kernels, or none.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
    most: usize,
}

impl Cache {
    /// The user's.
    pub(crate) fn of_user() -> Cache {
        Cache { folder: folder().map(|folder| folder.join("kernels")), most: MOST }
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Cache {
        Cache { folder: Some(folder.into()), most: MOST }
    }

    /// The entry of a key, if it is intact.
    pub(crate) fn load(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(key.file_name());
        let mut bytes = fs::read(&path).ok()?;
        let (magic, rest) = bytes.split_at_checked(MAGIC.len())?;
        let (digest, content) = rest.split_at_checked(DIGEST)?;
        if magic != MAGIC || digest != digest_of(key, content) {
            return None;
        }
        // The time of the last use decides which entry is removed first. If it can't be set, the time of the
        // writing does.
        let _ =
            File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(bytes.split_off(MAGIC.len() + DIGEST))
    }

    /// Stores a kernel. Others see the whole entry or none.
    pub(crate) fn store(&self, key: &Key, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let fresh =
            folder.join(format!("{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let bytes = [&MAGIC[..], &digest_of(key, content), content].concat();
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&fresh, bytes))
            .and_then(|()| fs::rename(&fresh, folder.join(key.file_name())));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
            return;
        }
        self.prune(folder);
    }

    /// Removes the least recently used entries, and unfinished files.
    fn prune(&self, folder: &Path) {
        let mut entries: Vec<(SystemTime, PathBuf)> = Vec::new();
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = file.path();
            let Ok(modified) = file.metadata().and_then(|data| data.modified()) else { continue };
            let ending = path.extension().unwrap_or_default();
            if ending == ENDING {
                entries.push((modified, path));
            } else if ending == "tmp" && modified.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(path);
            }
        }
        entries.sort();
        for (_, path) in entries.iter().take(entries.len().saturating_sub(self.most)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Over the key as well, so that an entry under another's name is ignored.
fn digest_of(key: &Key, content: &[u8]) -> [u8; DIGEST] {
    Sha256::new().chain_update(key.digest).chain_update(content).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(folder: &Path, most: usize) -> Cache {
        Cache { folder: Some(folder.join("a/b")), most }
    }

    fn key(text: &str) -> Key {
        Key::new("label", [text.as_bytes()])
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(folder.join("a/b")).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn what_is_stored_is_loaded_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = in_folder(folder.path(), 9);
        assert_eq!(cache.load(&key("one")), None);
        cache.store(&key("one"), b"content");
        cache.store(&key("empty"), b"");
        assert_eq!(cache.load(&key("one")).as_deref(), Some(&b"content"[..]));
        assert_eq!(cache.load(&key("empty")).as_deref(), Some(&b""[..]));
        assert_eq!(cache.load(&key("two")), None);
        cache.store(&key("one"), b"other");
        assert_eq!(cache.load(&key("one")).as_deref(), Some(&b"other"[..]));
        assert_eq!(files(folder.path()).len(), 2, "nothing is left over");
    }

    #[test]
    fn every_part_of_a_key_counts_by_itself() {
        let of = |parts: &[&str]| Key::new("label", parts.iter().map(|part| part.as_bytes()));
        let keys = [of(&["ab", "c"]), of(&["a", "bc"]), of(&["abc"]), of(&["ab", "c", ""]), of(&["c", "ab"])];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a.file_name() != b.file_name()), "{i}");
        }
    }

    #[test]
    fn a_damaged_entry_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = in_folder(folder.path(), 9);
        cache.store(&key("one"), b"content");
        let file = files(folder.path()).remove(0);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(cache.load(&key("one")), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            fs::write(&file, &altered).unwrap();
            assert_eq!(cache.load(&key("one")), None, "byte {at}");
        }
        fs::write(&file, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(cache.load(&key("one")), None, "a byte too many");
        cache.store(&key("one"), b"content");
        assert_eq!(cache.load(&key("one")).as_deref(), Some(&b"content"[..]), "it heals");
    }

    #[test]
    fn an_entry_under_another_name_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = in_folder(folder.path(), 9);
        cache.store(&key("one"), b"content");
        let file = files(folder.path()).remove(0);
        fs::rename(&file, file.with_file_name(key("two").file_name())).unwrap();
        assert_eq!(cache.load(&key("two")), None);
    }

    #[test]
    fn the_longest_unused_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = in_folder(folder.path(), 3);
        let names = ["one", "two", "three", "four"];
        for (age, name) in names.iter().enumerate() {
            if let Some(last) = name.strip_prefix("four") {
                assert!(last.is_empty());
                // The first is used once more before it gets too many.
                assert!(cache.load(&key("one")).is_some());
            }
            cache.store(&key(name), name.as_bytes());
            let file = folder.path().join("a/b").join(key(name).file_name());
            let time = SystemTime::now() - Duration::from_secs(1000 - age as u64);
            File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
        }
        let left: Vec<_> = names.iter().filter(|name| cache.load(&key(name)).is_some()).collect();
        assert_eq!(left, [&"one", &"three", &"four"]);
    }

    #[test]
    fn only_unfinished_files_that_are_old_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = in_folder(folder.path(), 3);
        cache.store(&key("one"), b"1");
        let (young, old, other) = ("1-0.tmp", "2-0.tmp", "algorithms.txt");
        for name in [young, old, other] {
            let file = File::create(folder.path().join("a/b").join(name)).unwrap();
            if name != young {
                file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
            }
        }
        cache.store(&key("two"), b"2");
        let left = files(folder.path());
        let is_there = |name: &str| left.iter().any(|path| path.ends_with(name));
        assert!(is_there(young) && !is_there(old) && is_there(other));
    }

    #[test]
    fn without_a_folder_nothing_is_kept_and_nothing_fails() {
        let none = Cache { folder: None, most: 9 };
        none.store(&key("one"), b"1");
        assert_eq!(none.load(&key("one")), None);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a file").unwrap();
        let blocked = in_folder(folder.path(), 9);
        blocked.store(&key("one"), b"1");
        assert_eq!(blocked.load(&key("one")), None);
    }

    #[test]
    fn the_folder_follows_the_environment() {
        let of = |pairs: &[(&str, &str)]| {
            folder_of(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.cache/towers".into()));
        let absolute = std::env::temp_dir();
        let user = absolute.to_str().expect("it has a plain name");
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", user)]), Some(absolute.join("towers")));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "x")]), Some("/h/.cache/towers".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")]), Some("/h/.cache/towers".into()));
        assert_eq!(of(&[("HOME", "/h"), ("TOWERS_CACHE_DIR", "/t")]), Some("/t".into()));
    }
}
