//! The completion mark: the last file written into a checkpoint's folder, with lengths and digests of the
//! others.

use crate::file::open_own;
use crate::fingerprint::{self, Fingerprint};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The file of a checkpoint with its tensors.
pub(crate) const TENSORS: &str = "tensors.safetensors";
pub(crate) const STATE: &str = "state.json";
const MARK: &str = "complete.json";

/// The version of the folder's layout.
const LAYOUT: u32 = 1;
/// The longest mark that is read, in bytes; ours have about 300.
const MAX_MARK: u64 = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    layout: u32,
    /// Counts the checkpoints of a store in the order of saving, independent of names and clocks.
    pub sequence: u64,
    files: BTreeMap<String, Fingerprint>,
}

impl Mark {
    pub(crate) fn new(sequence: u64, tensors: Fingerprint, state: Fingerprint) -> Self {
        let files = [(TENSORS.to_owned(), tensors), (STATE.to_owned(), state)].into();
        Mark { layout: LAYOUT, sequence, files }
    }

    /// Writes the mark into `folder` and syncs both.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(MARK);
        let json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::State { path: path.clone(), why: error.to_string() })?;
        fingerprint::create(&path, |out| out.write_all(&json))?;
        Ok(towers_files::sync_parent(&path)?)
    }

    /// Reads the mark of `folder`, without a look at the files that it speaks of.
    pub(crate) fn read(folder: &Path) -> Result<Mark> {
        let path = folder.join(MARK);
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Err(Error::damaged(folder, format!("it has no {MARK}, so it was never completed")));
        }
        let (file, len) = open_own(&path)?;
        if len > MAX_MARK {
            return Err(Error::damaged(folder, format!("its {MARK} has {len} bytes")));
        }
        let mut json = Vec::new();
        file.take(MAX_MARK).read_to_end(&mut json).map_err(Error::io("read", &path))?;
        let mark: Mark = serde_json::from_slice(&json)
            .map_err(|error| Error::damaged(folder, format!("its {MARK} is not readable: {error}")))?;
        if mark.layout != LAYOUT {
            let why = format!("it has layout {}, and this version reads {LAYOUT}", mark.layout);
            return Err(Error::damaged(folder, why));
        }
        Ok(mark)
    }

    /// The length of all files together.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Opens the file `name` of `folder` if it is byte for byte the one that was written; gives its length.
    pub(crate) fn open_verified(&self, folder: &Path, name: &str) -> Result<(File, u64)> {
        let Some(expected) = self.files.get(name) else {
            return Err(Error::damaged(folder, format!("its {MARK} says nothing of {name}")));
        };
        let path = folder.join(name);
        let (mut file, len) = open_own(&path)?;
        if len != expected.bytes {
            let why = format!("{name} has {len} bytes where {} were written", expected.bytes);
            return Err(Error::damaged(folder, why));
        }
        if fingerprint::of(&path, &mut file)? != *expected {
            let why = format!("{name} was changed: its SHA-256 is not the one in {MARK}");
            return Err(Error::damaged(folder, why));
        }
        Ok((file, len))
    }
}
