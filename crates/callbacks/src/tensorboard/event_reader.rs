//! Reads one scalar from the TensorBoard event files of a folder, to find out whether a run's epochs are in
//! them.

use super::event::{Content, Event, SessionStatus, What};
use prost::Message;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest record; longer ones are from other programs.
const MOST: u64 = 256 << 20;

/// The points of the curve `tag` in the event files of `folder`, as TensorBoard shows them: in the order of
/// the files' names, without those that a restart made void. Unreadable parts are left out.
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
            let Ok(event) = Event::decode(&record[..]) else { continue };
            take(event, tag, &mut points);
        }
    }
    points
}

/// The next record of a file: a length and a checksum, the data, and another checksum. `None` at the end, and
/// if it is incomplete.
fn record(file: &mut impl Read) -> Option<Vec<u8>> {
    let (mut head, mut tail) = ([0; 12], [0; 4]);
    file.read_exact(&mut head).ok()?;
    let len = u64::from_le_bytes(*head.first_chunk()?);
    let mut record = Vec::new();
    let read = file.take(Some(len).filter(|len| *len <= MOST)?).read_to_end(&mut record).ok()?;
    file.read_exact(&mut tail).ok()?;
    (read as u64 == len).then_some(record)
}

/// Adds the points of an event, or removes those that it makes void.
fn take(event: Event, tag: &str, points: &mut Vec<(i64, f32)>) {
    match event.what {
        Some(What::Summary(summary)) => {
            for value in summary.value.iter().filter(|value| value.tag == tag) {
                if let Some(Content::SimpleValue(point)) = value.content {
                    points.push((event.step, point));
                }
            }
        }
        Some(What::SessionLog(session)) if session.status() == SessionStatus::Start => {
            points.retain(|(other, _)| *other < event.step);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::EventFile;
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
        // An incomplete file of a killed process, and a file of another format.
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
