//! `mnist.npz`, in which Keras keeps MNIST: a ZIP archive of four arrays in NumPy's format.
//!
//! ZIP is read as APPNOTE 6.3 describes it, as far as NumPy writes it: stored or deflated entries, found by the central directory.
//! Arrays are those of NumPy's format versions 1 to 3, of whole numbers in C order.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::CrcReader;
use flate2::read::DeflateDecoder;

use dataset::Split;
use files::open_regular;

use crate::error::{Error, Result};
use crate::idx::labels_of;
use crate::kinds::Kind;

/// The most bytes of the end of an archive: its record, and a comment.
const MOST_END: u64 = 22 + u16::MAX as u64;
/// The most bytes of a central directory. NumPy's has 300.
const MOST_DIRECTORY: u64 = 1 << 16;
/// The most bytes of the text about an array.
const MOST_HEADER: usize = 1 << 14;

/// The splits of `kind` in an archive with `x_train`, `y_train`, `x_test` and `y_test`.
pub(crate) fn read(kind: Kind, path: &Path) -> Result<[Split; 2]> {
    let refuse = |reason: String| Error::Array { path: path.to_owned(), reason };
    let (mut file, len) = open_regular(path)?;
    let entries = directory(&mut file, len).map_err(refuse)?;
    let mut split = |name: &str, count: usize| {
        let [height, width, channels] = kind.shape();
        let mut array = |name: String, shape: &[usize]| {
            let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
            let entry = entry.ok_or_else(|| format!("there is no {name} in it"))?;
            entry.array(&mut file, shape).map_err(|reason| format!("{name}: {reason}"))
        };
        let images = array(format!("x_{name}.npy"), &[count, height, width]).map_err(refuse)?;
        let Numbers::Bytes(images) = images else {
            return Err(refuse(format!("x_{name}.npy: its pixels are no bytes")));
        };
        let labels = array(format!("y_{name}.npy"), &[count]).map_err(refuse)?.whole();
        let labels = labels_of(path, Some(kind), labels.into_iter())?;
        Ok(Split::of_pixels([height, width, channels], images, labels)?)
    };
    let [train, test] = kind.official().images;
    Ok([split("train", train)?, split("test", test)?])
}

/// An entry of the central directory.
struct Entry {
    name: Vec<u8>,
    deflated: bool,
    crc: u32,
    /// In the archive.
    packed: u64,
    /// Where its local header begins.
    start: u64,
}

/// A little-endian number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, String> {
    let own = bytes.get(at..at + N).ok_or("the ZIP archive is damaged")?;
    Ok(own.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// So many bytes of the file from `start` on.
fn bytes_at(file: &mut File, start: u64, len: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.take(len).read_to_end(&mut bytes));
    match read {
        Ok(read) if read as u64 == len => Ok(bytes),
        Ok(_) => Err("the ZIP archive is cut off".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn directory(file: &mut File, len: u64) -> Result<Vec<Entry>, String> {
    let tail_len = len.min(MOST_END);
    let tail = bytes_at(file, len - tail_len, tail_len)?;
    let end = tail.windows(4).rposition(|bytes| bytes == b"PK\x05\x06").ok_or("it is no ZIP archive")?;
    let [size, start] = [number::<4>(&tail, end + 12)?, number::<4>(&tail, end + 16)?];
    if size > MOST_DIRECTORY {
        return Err(format!("its directory has {size} bytes, but at most {MOST_DIRECTORY} are read"));
    }
    let directory = bytes_at(file, start, size)?;
    let (mut entries, mut at) = (Vec::new(), 0);
    while directory.get(at..at + 4) == Some(b"PK\x01\x02") {
        let field = |offset| number::<2>(&directory, at + offset);
        let [name, extra, comment] = [field(28)?, field(30)?, field(32)?].map(|len| len as usize);
        let deflated = match field(10)? {
            0 => false,
            8 => true,
            other => return Err(format!("it is compressed by method {other}, expected none or deflate")),
        };
        let whole = |offset| number::<4>(&directory, at + offset);
        let bytes = directory.get(at + 46..at + 46 + name).ok_or("the ZIP archive is damaged")?;
        let (crc, packed, start) = (whole(16)? as u32, whole(20)?, whole(42)?);
        entries.push(Entry { name: bytes.to_vec(), deflated, crc, packed, start });
        at += 46 + name + extra + comment;
    }
    Ok(entries)
}

impl Entry {
    /// Its array, which must have this shape.
    fn array(&self, file: &mut File, shape: &[usize]) -> Result<Numbers, String> {
        let header = bytes_at(file, self.start, 30)?;
        if header[..4] != *b"PK\x03\x04" {
            return Err("the ZIP archive is damaged".to_owned());
        }
        let skipped = number::<2>(&header, 26)? + number::<2>(&header, 28)?;
        file.seek(SeekFrom::Start(self.start + 30 + skipped)).map_err(|error| error.to_string())?;
        let packed = BufReader::with_capacity(1 << 16, file).take(self.packed);
        match self.deflated {
            true => numbers(CrcReader::new(DeflateDecoder::new(packed)), self.crc, shape),
            false => numbers(CrcReader::new(packed), self.crc, shape),
        }
    }
}

/// The values of an array.
enum Numbers {
    Bytes(Vec<u8>),
    Whole(Vec<i64>),
}

impl Numbers {
    fn whole(self) -> Vec<i64> {
        match self {
            Numbers::Bytes(bytes) => bytes.into_iter().map(i64::from).collect(),
            Numbers::Whole(numbers) => numbers,
        }
    }
}

/// Reads NumPy's format to its end.
fn numbers(mut file: CrcReader<impl Read>, crc: u32, shape: &[usize]) -> Result<Numbers, String> {
    let mut read = |len: usize| -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let damaged = |error: io::Error| format!("it is damaged: {error}");
        file.by_ref().take(len as u64).read_to_end(&mut bytes).map_err(damaged)?;
        if bytes.len() == len { Ok(bytes) } else { Err("it is cut off".to_owned()) }
    };
    let magic = read(8)?;
    let width = match (&magic[..6], magic[6]) {
        (b"\x93NUMPY", 1) => 2,
        (b"\x93NUMPY", 2 | 3) => 4,
        _ => return Err("it is no array of NumPy".to_owned()),
    };
    let len = read(width)?.iter().rev().fold(0_usize, |len, &byte| len << 8 | usize::from(byte));
    if len > MOST_HEADER {
        return Err(format!("the text about it has {len} bytes, but at most {MOST_HEADER} are read"));
    }
    let text = read(len)?;
    let text = str::from_utf8(&text).map_err(|_| "the text about it is no text".to_owned())?;
    let found = Header::parse(text).ok_or_else(|| format!("it can't be understood: {}", text.trim_end()))?;
    if found.fortran || found.shape != shape {
        let order = if found.fortran { "columns first" } else { "rows first" };
        return Err(format!("it has the shape {:?}, {order}, expected {shape:?}", found.shape));
    }
    let bytes =
        found.bytes.ok_or_else(|| format!("its values are `{}`, expected whole numbers", found.kind))?;
    let data = read(shape.iter().product::<usize>() * bytes)?;
    let numbers = match bytes {
        1 => Numbers::Bytes(data),
        4 => Numbers::Whole(data.as_chunks().0.iter().map(|&own| i32::from_le_bytes(own).into()).collect()),
        _ => Numbers::Whole(data.as_chunks().0.iter().map(|&own| i64::from_le_bytes(own)).collect()),
    };
    let mut rest = [0];
    match file.read(&mut rest) {
        Ok(0) if file.crc().sum() == crc => Ok(numbers),
        Ok(0) => Err("its checksum is wrong".to_owned()),
        Ok(_) => Err("it goes on after its values".to_owned()),
        Err(error) => Err(format!("it is damaged: {error}")),
    }
}

/// The text about an array: `{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }`.
struct Header<'a> {
    kind: &'a str,
    /// The bytes of a value, if they are whole numbers.
    bytes: Option<usize>,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let after = |key: &str| Some(text.split_once(&format!("'{key}':"))?.1.trim_start());
        let kind = after("descr")?.strip_prefix('\'')?.split('\'').next()?;
        let bytes = match kind {
            "|u1" | "u1" => Some(1),
            "<i4" => Some(4),
            "<i8" => Some(8),
            _ => None,
        };
        let fortran = match after("fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return None,
        };
        let sizes = after("shape")?.strip_prefix('(')?.split(')').next()?;
        let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
        Some(Header {
            kind,
            bytes,
            fortran,
            shape: sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?,
        })
    }
}
