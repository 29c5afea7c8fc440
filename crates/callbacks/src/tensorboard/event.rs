//! TensorBoard's event files: protocol buffers in the frames of a TFRecord file, as far as scalars, histograms and pictures
//! need them.
//!
//! A frame is the length (u64), the masked CRC-32C of its eight bytes, the record, and the masked CRC-32C of
//! the record, all little-endian. The messages are `Event`, `Summary` and `SessionLog` of TensorFlow's
//! `event.proto` and `summary.proto`.

use super::histogram::Histogram;
use crate::{Error, Picture, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that grows by whole records.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file in `folder`, named so that TensorBoard finds it and reads it after older ones.
    pub fn create(folder: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let (seconds, pid) = (now() as u64, std::process::id());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.towers.{pid}.{count}"));
        let file =
            OpenOptions::new().append(true).create(true).open(&path).map_err(Error::io("create", &path))?;
        let mut file = EventFile { path, file };
        file.write(&Event::version())?;
        Ok(file)
    }

    /// Appends an event, in one write.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.file.write_all(&frame(&event.encode(now()))).map_err(Error::io("write", &self.path))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// An event: its step, and the field that says what happened.
pub(super) struct Event {
    step: i64,
    what: Vec<u8>,
}

impl Event {
    /// What a file begins with.
    fn version() -> Event {
        Event { step: 0, what: field(3, b"brain.Event:2") }
    }

    /// A run goes on at `step`: what was written before of this and later steps is void.
    pub fn start(step: i64) -> Event {
        // Field 7 of Event is SessionLog, whose field 1 is the status; 1 means START.
        Event { step, what: field(7, &[1 << 3, 1]) }
    }

    /// A point of the curve `tag`.
    pub fn scalar(step: i64, tag: &str, value: f32) -> Event {
        // Field 2 of Summary.Value is a fixed 32-bit number.
        let mut point = vec![(2 << 3) | 5];
        point.extend(value.to_le_bytes());
        Event::value(step, tag, point)
    }

    /// A histogram for `tag`.
    pub fn histogram(step: i64, tag: &str, histogram: &Histogram) -> Event {
        let Histogram { min, max, sum, sum_squares, limits, counts } = histogram;
        // HistogramProto: 1 to 5 are doubles, 6 and 7 packed doubles. Field 5 of Summary.Value is one.
        let mut content = Vec::new();
        for (number, value) in (1..).zip([*min, *max, counts.iter().sum(), *sum, *sum_squares]) {
            content.push((number << 3) | 1);
            content.extend(value.to_le_bytes());
        }
        for (number, values) in [(6, limits), (7, counts)] {
            let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            content.extend(field(number, &packed));
        }
        Event::value(step, tag, field(5, &content))
    }

    /// A picture for `tag`.
    pub fn image(step: i64, tag: &str, picture: &Picture) -> Event {
        // Summary.Image: height, width, 3 for RGB, the file. Field 4 of Summary.Value is one.
        let mut content = Vec::new();
        for (number, value) in [(1, picture.height), (2, picture.width), (3, 3)] {
            content.push(number << 3);
            varint(&mut content, value.into());
        }
        content.extend(field(4, &picture.png));
        Event::value(step, tag, field(4, &content))
    }

    /// Field 5 of Event is Summary, whose field 1 is a value: 1 is its tag.
    fn value(step: i64, tag: &str, content: Vec<u8>) -> Event {
        let mut value = field(1, tag.as_bytes());
        value.extend(content);
        Event { step, what: field(5, &field(1, &value)) }
    }

    fn encode(&self, time: f64) -> Vec<u8> {
        // Event: 1 is the time as a fixed 64-bit number, 2 the step as a varint.
        let mut bytes = vec![(1 << 3) | 1];
        bytes.extend(time.to_le_bytes());
        bytes.push(2 << 3);
        varint(&mut bytes, self.step as u64);
        bytes.extend(&self.what);
        bytes
    }
}

/// A field of bytes: its number with wire type 2, its length, the bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![(number << 3) | 2];
    varint(&mut bytes, content.len() as u64);
    bytes.extend(content);
    bytes
}

/// Seven bits a byte, the lowest first, the top bit set in all but the last.
fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn frame(record: &[u8]) -> Vec<u8> {
    let len = (record.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(record.len() + 16);
    bytes.extend(len);
    bytes.extend(masked(crc32c(&len)).to_le_bytes());
    bytes.extend(record);
    bytes.extend(masked(crc32c(record)).to_le_bytes());
    bytes
}

/// TFRecord's mask: it keeps a checksum of data that hold checksums from degenerating.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The CRC-32C (Castagnoli) of some bytes, bit by bit: a few tens of kilobytes an epoch at most.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }

    /// The bytes are those of TensorBoard's own `RecordWriter` for this event.
    #[test]
    fn a_scalar_is_framed_as_tensorboard_frames_it() {
        let framed = frame(&Event::scalar(300, "epoch_loss", 0.25).encode(1.5));
        let hex: String = framed.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "2100000000000000017becf609000000000000f83f10ac02\
                        2a130a110a0a65706f63685f6c6f7373150000803ed2f16c2f";
        assert_eq!(hex, expected);
    }

    #[test]
    fn varints_of_every_length() {
        let encode = |value| {
            let mut bytes = Vec::new();
            varint(&mut bytes, value);
            bytes
        };
        assert_eq!(encode(0), [0]);
        assert_eq!(encode(127), [127]);
        assert_eq!(encode(300), [0xac, 0x02]);
        assert_eq!(encode(u64::MAX).len(), 10);
    }
}
