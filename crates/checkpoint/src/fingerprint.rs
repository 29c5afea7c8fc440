//! Files with their length and SHA-256: created, synced, read again.

use crate::{Error, Result, TensorRef, format};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

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

/// The fingerprint of `file`. It is read from its beginning, and left there.
pub(crate) fn of(path: &Path, file: &mut File) -> Result<Fingerprint> {
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
