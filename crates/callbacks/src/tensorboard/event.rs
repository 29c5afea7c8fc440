//! TensorBoard's event files: protocol buffers in the frames of a TFRecord file.
//!
//! A frame is the length (u64), the masked CRC-32C of its eight bytes, the record, and the masked CRC-32C of
//! the record, all little-endian. The messages are those of TensorFlow's `event.proto` and `summary.proto`, with
//! the fields that scalars, histograms, pictures and plugins need.

use super::histogram::Histogram;
use crate::{Error, Picture, Result};
use crc::{CRC_32_ISCSI, Crc};
use prost::{Message, Oneof};
use std::borrow::Borrow;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// An event file, which grows by whole records.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file in `folder`, with a name that TensorBoard reads after those of older files.
    pub fn create(folder: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let (seconds, pid) = (now() as u64, std::process::id());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.towers.{pid}.{count:06}"));
        let file =
            OpenOptions::new().append(true).create(true).open(&path).map_err(Error::io("create", &path))?;
        let mut file = EventFile { path, file };
        file.write(&Event::version())?;
        Ok(file)
    }

    /// Appends an event, in one write.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.write_all([event])
    }

    /// Appends events, in one write.
    pub fn write_all(&mut self, events: impl IntoIterator<Item = impl Borrow<Event>>) -> Result<()> {
        let frames = events.into_iter().flat_map(|event| frame(&event.borrow().encode_to_vec()));
        let bytes: Vec<u8> = frames.collect();
        self.file.write_all(&bytes).map_err(Error::io("write", &self.path))
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(enumeration = "SessionStatus", tag = "1")]
    pub status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SessionStatus {
    Unspecified = 0,
    Start = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(oneof = "Content", tags = "2, 4, 5, 8")]
    pub content: Option<Content>,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
}

/// What is for a plugin of TensorBoard alone.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PluginData {
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub content: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
    #[prost(float, tag = "2")]
    SimpleValue(f32),
    #[prost(message, tag = "4")]
    Image(Image),
    #[prost(message, tag = "5")]
    Histogram(HistogramProto),
    #[prost(message, tag = "8")]
    Tensor(TensorProto),
}

/// A tensor without elements.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorProto {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShape>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShape {
    #[prost(message, repeated, tag = "2")]
    dim: Vec<Dim>,
}

#[derive(Clone, PartialEq, Message)]
struct Dim {
    #[prost(int64, tag = "1")]
    size: i64,
}

impl TensorProto {
    /// An empty vector of floats, where the metadata say everything.
    pub fn empty() -> Self {
        TensorProto { dtype: 1, shape: Some(TensorShape { dim: vec![Dim { size: 0 }] }) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Image {
    #[prost(int32, tag = "1")]
    height: i32,
    #[prost(int32, tag = "2")]
    width: i32,
    /// The number of channels.
    #[prost(int32, tag = "3")]
    colorspace: i32,
    /// A file, for example a PNG.
    #[prost(bytes = "vec", tag = "4")]
    encoded_image_string: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramProto {
    #[prost(double, tag = "1")]
    min: f64,
    #[prost(double, tag = "2")]
    max: f64,
    #[prost(double, tag = "3")]
    num: f64,
    #[prost(double, tag = "4")]
    sum: f64,
    #[prost(double, tag = "5")]
    sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    bucket: Vec<f64>,
}

impl Event {
    /// The first event of a file.
    fn version() -> Event {
        Event::new(0, What::FileVersion("brain.Event:2".to_owned()))
    }

    /// A run resumes at `step`: earlier events of this and later steps are void.
    pub fn start(step: i64) -> Event {
        Event::new(step, What::SessionLog(SessionLog { status: SessionStatus::Start.into() }))
    }

    /// A point of the curve `tag`.
    pub fn scalar(step: i64, tag: &str, value: f32) -> Event {
        Event::value(step, tag, Content::SimpleValue(value))
    }

    /// A histogram for `tag`.
    pub fn histogram(step: i64, tag: &str, histogram: &Histogram) -> Event {
        let Histogram { min, max, sum, sum_squares, limits, counts } = histogram;
        let histogram = HistogramProto {
            min: *min,
            max: *max,
            num: counts.iter().sum(),
            sum: *sum,
            sum_squares: *sum_squares,
            bucket_limit: limits.to_vec(),
            bucket: counts.to_vec(),
        };
        Event::value(step, tag, Content::Histogram(histogram))
    }

    /// A picture for `tag`.
    pub fn image(step: i64, tag: &str, picture: &Picture) -> Event {
        let image = Image {
            height: picture.height as i32,
            width: picture.width as i32,
            colorspace: 3,
            encoded_image_string: picture.png.clone(),
        };
        Event::value(step, tag, Content::Image(image))
    }

    /// Data for a plugin alone.
    pub fn plugin(tag: &str, name: &str, content: Vec<u8>) -> Event {
        let data = PluginData { plugin_name: name.to_owned(), content };
        let value = Value {
            tag: tag.to_owned(),
            content: Some(Content::Tensor(TensorProto::empty())),
            metadata: Some(Metadata { plugin_data: Some(data) }),
        };
        Event::new(0, What::Summary(Summary { value: vec![value] }))
    }

    fn value(step: i64, tag: &str, content: Content) -> Event {
        let value = Value { tag: tag.to_owned(), content: Some(content), metadata: None };
        Event::new(step, What::Summary(Summary { value: vec![value] }))
    }

    fn new(step: i64, what: What) -> Event {
        Event { wall_time: now(), step, what: Some(what) }
    }
}

fn frame(record: &[u8]) -> Vec<u8> {
    let len = (record.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(record.len() + 16);
    bytes.extend(len);
    bytes.extend(masked_crc(&len).to_le_bytes());
    bytes.extend(record);
    bytes.extend(masked_crc(record).to_le_bytes());
    bytes
}

/// The CRC-32C with TFRecord's mask, which is needed for data that contain checksums.
fn masked_crc(bytes: &[u8]) -> u32 {
    static CRC_32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
    CRC_32C.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those of TensorBoard's `RecordWriter` for this event.
    #[test]
    fn a_scalar_is_framed_as_tensorboard_frames_it() {
        let framed =
            frame(&Event { wall_time: 1.5, ..Event::scalar(300, "epoch_loss", 0.25) }.encode_to_vec());
        let hex: String = framed.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "2100000000000000017becf609000000000000f83f10ac02\
                        2a130a110a0a65706f63685f6c6f7373150000803ed2f16c2f";
        assert_eq!(hex, expected);
    }
}
