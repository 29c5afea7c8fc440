//! Whole files, of bounded size.

use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// The largest file that is read, and the most bytes of weights that are taken from one. The largest ConvNeXt of Keras has 1.3 GiB, and
/// protobuf, of which ONNX files are made, has no larger files.
pub const MAX_FILE: u64 = 1 << 31;

/// The bytes of a regular file that is not too large.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let io = |source| towers_files::Error::io("read", path)(source);
    let about = std::fs::metadata(path).map_err(io)?;
    if !about.is_file() {
        return Err(Error::file(path, "it is no regular file"));
    }
    let file = std::fs::File::open(path).map_err(io)?;
    bounded(file, about.len(), MAX_FILE).map_err(io)?.ok_or_else(|| too_large(path))
}

pub(crate) fn too_large(path: &Path) -> Error {
    Error::file(path, format!("it is larger than {} MiB, the most that is read", MAX_FILE >> 20))
}

/// All that `reader` gives, or `None` if that is more than `most`; `expected` is only how much to make room for.
pub(crate) fn bounded(reader: impl Read, expected: u64, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(expected.min(most).min(1 << 26) as usize);
    reader.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
