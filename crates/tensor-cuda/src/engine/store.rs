//! Measurements on disk: lines of text, beside the compiled kernels in the user's cache folder.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A file of `key -> value` lines under a head line with their versions. A file with another head is ignored,
/// and so is a damaged line. Without a writable folder, algorithms are measured again each time.
pub(crate) struct Store {
    file: PathBuf,
    head: String,
}

/// The head's first word, to be changed with the meaning of the lines. Under `towers-algorithms-1` our own
/// kernels were not measured; under 2 there may be algorithms that can't be captured; under 3 choices that
/// were made because of passing failures.
const VERSION: &str = "towers-algorithms-4";

/// Measuring a convolution takes much less.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Store {
    /// Measurements of this version of a library and of our own kernels, on this kind of device. The file's
    /// name has library and device too, so that two kinds of GPU in one machine do not overwrite each
    /// other's.
    pub(crate) fn new(folder: &Path, library: &str, own: &str, device: &str) -> Store {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = format!("algorithms {library} {device}").chars().map(plain).collect();
        let head = format!("{VERSION} {library} {own} {device}").replace(['\n', '\r'], " ");
        Store { file: folder.join(format!("{name}.txt")), head }
    }

    /// Waits for the lock among all threads and processes that use this file. Dropping the result ends it.
    /// After a minute, or if the file can't be locked, it returns without a lock: at worst the same is
    /// measured twice.
    pub(crate) fn lock(&self) -> Option<File> {
        fs::create_dir_all(self.file.parent()?).ok()?;
        let file = File::create(self.file.with_extension("lock")).ok()?;
        let end = Instant::now() + LONGEST_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Some(file),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(20))
                }
                Err(_) => return None,
            }
        }
    }

    /// All undamaged lines.
    pub(crate) fn load(&self) -> BTreeMap<String, String> {
        let bytes = fs::read(&self.file).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        if lines.next() != Some(self.head.as_str()) {
            return BTreeMap::new();
        }
        let pair = |line: &str| line.split_once(" -> ").map(|(key, value)| (key.into(), value.into()));
        lines.filter_map(pair).collect()
    }

    /// Adds or replaces the line of that key. Other processes see the file before or after, never in between.
    pub(crate) fn save(&self, key: &str, value: &str) {
        let mut all = self.load();
        all.insert(key.into(), value.into());
        let lines: String = all.iter().map(|(key, value)| format!("{key} -> {value}\n")).collect();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let fresh = self.file.with_extension(unique);
        let written = fs::write(&fresh, format!("{}\n{lines}", self.head));
        if written.and_then(|()| fs::rename(&fresh, &self.file)).is_err() {
            // A file that stays does no harm.
            let _ = fs::remove_file(&fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_again_by_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "cuDNN 9.1.0", "own 1", "A GPU / 80GB");
        assert!(store.load().is_empty());
        let args = store.lock();
        assert!(args.is_some());
        store.save("one", "1");
        store.save("two", "2");
        store.save("one", "3");
        let again = Store::new(folder.path(), "cuDNN 9.1.0", "own 1", "A GPU / 80GB").load();
        assert_eq!(
            again.into_iter().collect::<Vec<_>>(),
            [("one".into(), "3".into()), ("two".into(), "2".into())]
        );
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }

    #[test]
    fn one_has_its_turn_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "L", "O", "D");
        let args = store.lock();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| store.lock().map(|_| store.load().len()));
            store.save("one", "1");
            drop(args);
            assert_eq!(waiting.join().unwrap(), Some(1), "what the first one saved is there");
        });
    }

    #[test]
    fn another_device_or_version_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let store = |library, own, device| Store::new(folder.path(), library, own, device);
        store("cuDNN 9.1.0", "1", "A").save("one", "1");
        assert!(store("cuDNN 9.1.1", "1", "A").load().is_empty());
        assert!(store("cuDNN 9.1.0", "1", "B").load().is_empty());
        assert!(store("cuDNN 9.1.0", "2", "A").load().is_empty());
        // Two names that become the same file name: the head tells them apart.
        assert!(store("cuDNN 9.1-0", "1", "A").load().is_empty());
        assert_eq!(store("cuDNN 9.1.0", "1", "A").load().len(), 1);
        // A process with other kernels takes the file over.
        store("cuDNN 9.1.0", "2", "A").save("two", "2");
        assert!(store("cuDNN 9.1.0", "1", "A").load().is_empty());
        assert_eq!(store("cuDNN 9.1.0", "2", "A").load().len(), 1);
    }

    /// Lines from before our own kernels were measured would keep them from being tried.
    #[test]
    fn an_earlier_form_of_the_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "cuDNN 9.1.0", "own 1", "A");
        for head in ["towers-algorithms-1 cuDNN 9.1.0 A", "towers-algorithms-1 cuDNN 9.1.0 own 1 A"] {
            fs::write(&store.file, format!("{head}\none -> own\ntwo -> 1 1 0.25\n")).unwrap();
            assert!(store.load().is_empty(), "{head}");
        }
    }

    #[test]
    fn damage_loses_lines_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), "L", "O", "D");
        store.save("one", "1");
        let mut bytes = fs::read(&store.file).unwrap();
        bytes.extend(b"no arrow here\n\xff\xfe -> \xff\ntwo -> 2");
        fs::write(&store.file, &bytes).unwrap();
        let lines = store.load();
        assert_eq!((lines.get("one"), lines.get("two")), (Some(&"1".into()), Some(&"2".into())));
        fs::write(&store.file, b"\x00\x01\x02").unwrap();
        assert!(store.load().is_empty());
        store.save("three", "3");
        assert_eq!(store.load().len(), 1);
    }

    #[test]
    fn a_folder_that_can_not_be_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let store = Store::new(&file.join("below"), "L", "O", "D");
        assert!(store.lock().is_none());
        store.save("one", "1");
        assert!(store.load().is_empty());
    }
}
