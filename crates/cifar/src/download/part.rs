//! The file of an unfinished download, and the checksum of its bytes so far.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use crate::checksum::{digest, hex};
use crate::error::{Error, Result};

/// An unfinished download. It survives the process, so that the next one continues where this one stopped.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    md5: Md5,
    bytes: u64,
}

impl Part {
    /// Opens or creates the file at `path` and begins the checksum with its content.
    pub fn open(path: PathBuf) -> Result<Part> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        let mut part = Part { path, file, md5: Md5::new(), bytes: 0 };
        (part.md5, part.bytes) = digest(&mut part.file, &part.path)?;
        Ok(part)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes that are there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The checksum of the bytes that are there.
    pub fn md5(&self) -> String {
        hex(&self.md5.clone().finalize())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.md5.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Empties the file.
    pub fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(Error::io("truncate", &self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(Error::io("truncate", &self.path))?;
        (self.md5, self.bytes) = (Md5::new(), 0);
        Ok(())
    }

    /// Deletes the file.
    pub fn delete(self) -> Result<()> {
        let Part { path, file, .. } = self;
        drop(file); // Windows deletes no open file.
        fs::remove_file(&path).map_err(Error::io("delete", &path))
    }
}
