//! MD5, which the official page tells of every archive.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use md5::{Digest, Md5};

use towers_files::open_regular;

use crate::error::{Error, Result};

/// The MD5 of the file at `path`, in hexadecimal.
pub(crate) fn md5_of(path: &Path) -> Result<String> {
    let (mut file, _) = open_regular(path)?;
    Ok(hex(&digest(&mut file, path)?.0.finalize()))
}

/// The state of the checksum after all bytes of `file`, and their number.
pub(crate) fn digest(file: &mut File, path: &Path) -> Result<(Md5, u64)> {
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

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
