//! What TensorBoard's event files of a folder say of one scalar: enough to know whether a run's epochs are in them.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A longer record is none of ours.
const MOST: u64 = 256 << 20;

/// The points of the curve `tag` in the event files of `folder`, as TensorBoard shows them: in the order of the files' names, without
/// those that a restart took back. What can't be read is left out.
pub(super) fn points(folder: &Path, tag: &str) -> Vec<(i64, f32)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| path.to_string_lossy().contains("tfevents") && path.is_file();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_log).collect();
    files.sort();
    let mut points = Vec::new();
    for file in files {
        let Ok(file) = File::open(file) else { continue };
        let mut file = BufReader::new(file);
        while let Some(record) = record(&mut file) {
            take(&record, tag, &mut points);
        }
    }
    points
}

/// The next record of a file: behind its length and a checksum, before another one. `None` at the end, and where it was cut off.
fn record(file: &mut impl Read) -> Option<Vec<u8>> {
    let (mut head, mut tail) = ([0; 12], [0; 4]);
    file.read_exact(&mut head).ok()?;
    let len = u64::from_le_bytes(*head.first_chunk()?);
    let mut record = Vec::new();
    let read = file.take(Some(len).filter(|len| *len <= MOST)?).read_to_end(&mut record).ok()?;
    file.read_exact(&mut tail).ok()?;
    (read as u64 == len).then_some(record)
}

/// Takes the points of an event, or takes back those that it makes void.
fn take(event: &[u8], tag: &str, points: &mut Vec<(i64, f32)>) {
    let step = Fields(event).find_map(|(number, field)| match field {
        Field::Number(step) if number == 2 => Some(step as i64),
        _ => None,
    });
    let step = step.unwrap_or(0);
    for (number, field) in Fields(event) {
        match (number, field) {
            // A summary, whose field 1 is a value.
            (5, Field::Bytes(summary)) => {
                let values = Fields(summary).filter(|(number, _)| *number == 1);
                points.extend(values.filter_map(|(_, value)| Some((step, scalar(value, tag)?))));
            }
            // A session that starts.
            (7, Field::Bytes(session)) if Fields(session).any(|field| field == (1, Field::Number(1))) => {
                points.retain(|(other, _)| *other < step);
            }
            _ => {}
        }
    }
}

/// The number of a value with this tag, if it is one.
fn scalar(value: Field<'_>, tag: &str) -> Option<f32> {
    let Field::Bytes(value) = value else { return None };
    let own = Fields(value).any(|field| field == (1, Field::Bytes(tag.as_bytes())));
    let point = Fields(value).find_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == 2 => Some(f32::from_le_bytes(*bytes.first_chunk()?)),
        _ => None,
    });
    point.filter(|_| own)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    /// Of a length that is told, or of 4 or 8 bytes.
    Bytes(&'a [u8]),
}

/// The fields of a message of Protocol Buffers with their numbers, up to what is none.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let len = match key & 7 {
            0 => return Some((key >> 3, Field::Number(self.varint()?))),
            1 => 8,
            2 => usize::try_from(self.varint()?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some((key >> 3, Field::Bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, EventFile};
    use super::*;

    #[test]
    fn points_are_those_that_tensorboard_shows() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            points(folder.path(), "epoch_loss").is_empty()
                && points("nowhere".as_ref(), "epoch_loss").is_empty()
        );
        let mut file = EventFile::create(folder.path()).unwrap();
        for step in 0..300 {
            file.write(&Event::scalar(step, "epoch_loss", step as f32)).unwrap();
            file.write(&Event::scalar(step, "epoch_accuracy", 0.5)).unwrap();
        }
        file.write(&Event::start(298)).unwrap();
        file.write(&Event::scalar(298, "epoch_loss", 7.0)).unwrap();
        let all = points(folder.path(), "epoch_loss");
        assert_eq!((all.len(), all[297], all[298]), (299, (297, 297.0), (298, 7.0)));
        // What a killed process left, and what is no such file.
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        assert_eq!(points(folder.path(), "epoch_loss").len(), 298);
        for junk in
            [&[0xff; 64][..], &[5, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 0x2a, 0xff, 0xff, 0xff, 0xff, 1, 1, 1, 1]]
        {
            fs::write(&path, junk).unwrap();
            assert!(points(folder.path(), "epoch_loss").is_empty());
        }
    }
}
