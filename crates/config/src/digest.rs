//! SHA-256 digests.

use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// [`Error::File`] if it can't be read.
pub fn digest_file(path: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(Error::io("read", path))?);
    loop {
        let bytes = file.fill_buf().map_err(Error::io("read", path))?;
        let len = bytes.len();
        if len == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(bytes);
        file.consume(len);
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
