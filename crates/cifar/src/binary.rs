//! The binary layout: records of one label byte (CIFAR-100: coarse, then fine) and 3,072 pixel bytes, the
//! red plane, the green and the blue one, each 32 rows of 32.

use std::io::{BufReader, Read};
use std::path::Path;

use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::records::Records;
use crate::sizes::IMAGE_BYTES;

pub(crate) fn record_bytes(kind: Kind) -> usize {
    IMAGE_BYTES + label_bytes(kind)
}

fn label_bytes(kind: Kind) -> usize {
    if kind.official().coarse.is_empty() { 1 } else { 2 }
}

/// Appends the records of the file at `path`, which must be `images` of them exactly.
pub(crate) fn read(path: &Path, images: usize, records: &mut Records) -> Result<()> {
    let (file, found) = open_regular(path)?;
    let mut record = vec![0; record_bytes(records.kind)];
    let expected = (images * record.len()) as u64;
    if found != expected {
        return Err(Error::FileSize { path: path.into(), expected, found });
    }
    let mut file = BufReader::with_capacity(1 << 18, file);
    for k in 0..images {
        file.read_exact(&mut record).map_err(Error::io("read", path))?;
        let (labels, planes) = record.split_at(label_bytes(records.kind));
        if let [coarse, _] = *labels {
            records.push_coarse(path, k, coarse.into())?;
        }
        records.push_label(path, k, labels[labels.len() - 1].into())?;
        records.push_planes(planes);
    }
    Ok(())
}
