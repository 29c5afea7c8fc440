//! The file in which an archive arrives, and the checksum of what has arrived so far.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use crate::error::{Error, Result};
use crate::source::hex;

/// An unfinished download. It survives the process, so that the next one goes on where this one stopped.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    md5: Md5,
    bytes: u64,
}

impl Part {
    /// Opens or creates the file at `path` and takes up the checksum of what is in it.
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

    /// Forgets what is there.
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

/// The MD5 of the file at `path`, in hexadecimal.
pub(crate) fn md5_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    Ok(hex(&digest(&mut file, path)?.0.finalize()))
}

/// The state of the checksum after all bytes of `file`, and their number.
fn digest(file: &mut File, path: &Path) -> Result<(Md5, u64)> {
    let (mut md5, mut bytes) = (Md5::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(Error::io("read", path))? {
            0 => return Ok((md5, bytes)),
            n => {
                md5.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
}
