//! Weights in files beside a graph, where PyTorch and others put them.

use super::proto::TensorProto;
use crate::text::shortened;
use prost::bytes::Bytes;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

/// The most bytes of weights in such files: more than the memory of most machines.
const MOST_BYTES: u64 = 1 << 36;

/// The files in the folder of a graph.
pub(super) struct Files<'f> {
    folder: &'f Path,
    left: u64,
}

impl<'f> Files<'f> {
    pub(super) fn of(folder: &'f Path) -> Self {
        Files { folder, left: MOST_BYTES }
    }

    /// The bytes of a tensor, which are this many.
    pub(super) fn read(&mut self, tensor: &TensorProto, bytes: usize) -> Result<Bytes, String> {
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key);
        let name = entry("location").map_or("", |entry| entry.value.as_str());
        let shown = shortened(name);
        // Nothing but a file in that folder: a graph may come from anywhere.
        let mut parts = Path::new(name).components();
        if name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!(
                "its weights must be in a file beside it or in a folder there, but are in `{shown}`"
            ));
        }
        let number = |key: &str| entry(key).map(|entry| entry.value.parse::<u64>());
        let needed = bytes as u64;
        let offset = match (number("offset"), number("length")) {
            (None, None | Some(Ok(_))) => Some(0),
            (Some(Ok(offset)), None | Some(Ok(_))) => Some(offset),
            _ => None,
        };
        let (Some(offset), true) = (offset, needed <= self.left) else {
            return Err(format!(
                "its weights in `{shown}` have no sound place, or are more than {} GiB",
                MOST_BYTES >> 30
            ));
        };
        if let Some(Ok(length)) = number("length")
            && length != needed
        {
            return Err(format!(
                "its tensor `{}` takes {needed} bytes, but has {length} in `{shown}`",
                shortened(&tensor.name)
            ));
        }
        self.left -= needed;
        let path = self.folder.join(name);
        let read = || {
            let other = |what: &str| std::io::Error::other(what.to_owned());
            let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { self.folder };
            if !path.canonicalize()?.starts_with(folder.canonicalize()?) {
                return Err(other("it lies in another folder"));
            }
            let about = std::fs::metadata(&path)?;
            if !about.is_file() {
                return Err(other("it is no regular file"));
            }
            if offset.checked_add(needed).is_none_or(|end| end > about.len()) {
                return Err(other("it is too short"));
            }
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut raw = vec![0; bytes];
            file.read_exact(&mut raw)?;
            Ok(raw.into())
        };
        read()
            .map_err(|error| format!("its weights are in `{shown}` beside it, which can't be read: {error}"))
    }
}
