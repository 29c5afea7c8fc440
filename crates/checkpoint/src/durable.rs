//! Files that are on the disk when a function returns: written, hashed, synced, renamed into place.

use crate::{Error, Result, TensorRef, format};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a file is, and its SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    pub bytes: u64,
    pub sha256: String,
}

/// Passes bytes on and keeps their fingerprint.
struct Hashed<W> {
    out: W,
    bytes: u64,
    hash: Sha256,
}

impl<W> Hashed<W> {
    fn new(out: W) -> Self {
        Hashed { out, bytes: 0, hash: Sha256::new() }
    }

    fn fingerprint(self) -> Fingerprint {
        let sha256 = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Fingerprint { bytes: self.bytes, sha256 }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.out.write(bytes)?;
        self.bytes += taken as u64;
        self.hash.update(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Creates the file `path`, which must not exist, lets `fill` write it, and syncs it to the disk.
pub(crate) fn create(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<Fingerprint> {
    let file =
        OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::io("create", path))?;
    let mut out = Hashed::new(&file);
    fill(&mut out).map_err(Error::io("write", path))?;
    let fingerprint = out.fingerprint();
    file.sync_all().map_err(Error::io("sync", path))?;
    Ok(fingerprint)
}

/// Creates the file `path` as a synced safetensors file.
pub(crate) fn create_tensors(
    path: &Path,
    tensors: &[TensorRef<'_>],
    metadata: &BTreeMap<String, String>,
) -> Result<Fingerprint> {
    let header = format::header(path, tensors, metadata)?;
    create(path, |mut out| {
        out.write_all(&header)?;
        format::write_data(&mut out, tensors)
    })
}

/// Opens a regular file for reading and gives its length. A symbolic link is refused.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    let metadata = fs::symlink_metadata(path).map_err(Error::io("read", path))?;
    if !metadata.is_file() {
        return Err(Error::io("read", path)(not_regular()));
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
    Ok((file, metadata.len()))
}

/// What is said of a pipe, a device or a link.
pub(crate) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// The fingerprint of `file`. It is read from its beginning, and left there.
pub(crate) fn fingerprint(path: &Path, file: &mut File) -> Result<Fingerprint> {
    let mut hashed = Hashed::new(io::sink());
    let mut buffer = vec![0; 256 << 10];
    let mut pass = || -> io::Result<()> {
        file.rewind()?;
        loop {
            match file.read(&mut buffer)? {
                0 => return file.rewind(),
                read => hashed.write_all(&buffer[..read])?,
            }
        }
    };
    pass().map_err(Error::io("read", path))?;
    Ok(hashed.fingerprint())
}

/// Makes a folder and those above it that are missing, and their names durable.
pub(crate) fn create_folders(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(path)?;
    missing.iter().try_for_each(|folder| sync(parent(folder)))
}

/// Makes the names in a folder durable. Only Unix has a call for that; elsewhere the file system decides.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    sync(path).map_err(Error::io("sync", path))
}

fn sync(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io("rename a new version to", to))
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// `PID-N`, which no other name of this process and no live process of this machine has.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A file or folder that is removed when this is dropped, unless it was kept.
pub(crate) struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    pub(crate) fn new(path: PathBuf) -> Self {
        Temporary { path, kept: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // An error is already on its way to the caller; this is the best that can be done beside it.
            let _ =
                if self.path.is_dir() { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        }
    }
}
