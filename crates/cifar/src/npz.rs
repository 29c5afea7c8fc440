//! `.npz` files, as NumPy writes them and as Keras keeps MNIST: ZIP archives of arrays in NumPy's format.
//!
//! ZIP is read as APPNOTE 6.3 describes it, as far as NumPy writes it: stored or deflated entries, found by the central directory.
//! Arrays are those of NumPy's format versions 1 to 3, of whole numbers in C order.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::CrcReader;
use flate2::read::DeflateDecoder;

use towers_dataset::ndarray::Array2;
use towers_dataset::{Dataset, Split};
use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::idx::{MOST_ASIDE, labels_of};
use crate::kinds::Kind;

/// The most bytes of the end of an archive: its record, and a comment.
const MOST_END: u64 = 22 + u16::MAX as u64;
/// The most bytes of a central directory. NumPy's has 300.
const MOST_DIRECTORY: u64 = 1 << 16;
/// The most bytes of the text about an array.
const MOST_HEADER: usize = 1 << 14;

/// The most classes of multi-hot labels: as many as labels of 16 bits tell apart.
const MOST_CLASSES: usize = 1 << 16;

/// The shape of images in words.
const IMAGES: &str =
    "[images, height, width], maybe with 1 or 3 channels behind, and sides of 1 to 1024 pixels";

/// Reads an archive with the arrays `x_train`, `y_train`, `x_test` and `y_test`, and maybe `x_val` and `y_val`, as
/// `numpy.savez` and `savez_compressed` write it. Other arrays are left alone.
///
/// Images are `[n, height, width]` or `[n, height, width, channels]` of `uint8` with 1 or 3 channels, labels `[n]` or
/// `[n, 1]` of any type of whole numbers. The classes are called by their numbers. The arrays may take up to `most`
/// bytes of memory.
///
/// Labels `[n, classes]` are 0 and 1. If each row has a single 1 they are one-hot, as `keras.utils.to_categorical` makes them;
/// otherwise an image has [any number of classes](Split::multi_hot).
///
/// # Errors
/// [`Error::Array`] for a file that is something else, lacks an array, or has arrays that don't fit; [`Error::Label`];
/// [`Error::File`].
///
/// ```no_run
/// let scans = towers_cifar::npz::read_file("scans.npz", 1 << 30)?;
/// println!("{:?}", scans.train.shape());
/// # Ok::<(), towers_cifar::Error>(())
/// ```
pub fn read_file(path: impl AsRef<Path>, most: u64) -> Result<Dataset> {
    let path = path.as_ref();
    let mut archive = Archive::open(path, most)?;
    let mut train = archive.split("train", None)?;
    let has_validation = ["x_val.npy", "y_val.npy"].iter().any(|name| archive.entry(name).is_some());
    let mut validation = has_validation.then(|| archive.split("val", None)).transpose()?;
    let mut test = archive.split("test", None)?;
    let columns = |split: &Split| split.multi_hot.as_ref().map(Array2::ncols);
    for (name, split) in [("val", validation.as_ref()), ("test", Some(&test))] {
        if let Some(found) = split.map(Split::shape).filter(|found| *found != train.shape()) {
            let expected = train.shape();
            let reason =
                format!("x_{name}.npy: its images are of {found:?}, but those to train on of {expected:?}");
            return Err(archive.refuse(reason));
        }
        if split.is_some_and(|split| columns(split) != columns(&train)) {
            let reason = format!("y_{name}.npy: its labels have another number of columns than y_train.npy");
            return Err(archive.refuse(reason));
        }
    }
    let one_hot = |split: &Split| {
        split
            .multi_hot
            .as_ref()
            .is_none_or(|rows| rows.outer_iter().all(|row| row.iter().filter(|&&has| has == 1).count() == 1))
    };
    let columns = columns(&train);
    if [Some(&train), validation.as_ref(), Some(&test)].into_iter().flatten().all(one_hot) {
        // `labels` has the class of each.
        (train.multi_hot, test.multi_hot) = (None, None);
        validation.iter_mut().for_each(|split| split.multi_hot = None);
    }
    let splits = [Some(&train), validation.as_ref(), Some(&test)];
    let labels = splits.into_iter().flatten().flat_map(|split| &split.labels);
    let classes = columns.unwrap_or(usize::from(labels.copied().max().unwrap_or(0)) + 1);
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut data = Dataset::new(name, train, test, (0..classes).map(|class| class.to_string()))?;
    data.validation = validation;
    Ok(data)
}

/// The splits of `kind` in an archive with `x_train`, `y_train`, `x_test` and `y_test`.
pub(crate) fn read(kind: Kind, path: &Path) -> Result<[Split; 2]> {
    let mut archive = Archive::open(path, u64::MAX)?;
    let [train, test] = kind.official().images;
    Ok([archive.split("train", Some((kind, train)))?, archive.split("test", Some((kind, test)))?])
}

/// An archive whose arrays are read one by one.
struct Archive<'a> {
    path: &'a Path,
    file: File,
    entries: Vec<Entry>,
    /// The most bytes of the arrays that are still to be read.
    left: u64,
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path, most: u64) -> Result<Self> {
        let (mut file, len) = open_regular(path)?;
        let entries = directory(&mut file, len);
        let entries = entries.map_err(|reason| Error::Array { path: path.to_owned(), reason })?;
        Ok(Archive { path, file, entries, left: most })
    }

    fn refuse(&self, reason: String) -> Error {
        Error::Array { path: self.path.to_owned(), reason }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name.as_bytes())
    }

    /// The images and labels of `train`, `test` or `val`: of a known data set with its number of images.
    fn split(&mut self, name: &str, known: Option<(Kind, usize)>) -> Result<Split> {
        let known_shape = known.map(|(kind, count)| [count, kind.shape()[0], kind.shape()[1]]);
        let expected = known_shape.map_or_else(|| IMAGES.to_owned(), |shape| format!("{shape:?}"));
        let takes =
            |shape: &[usize]| known_shape.map_or_else(|| is_of_images(shape), |known| known == *shape);
        let (shape, pixels) = self.array(&format!("x_{name}.npy"), true, &takes, &expected)?;
        let [count, height, width] = [shape[0], shape[1], shape[2]];
        let channels = shape.get(3).copied().unwrap_or(1);
        let several = known.is_none();
        let is_of_labels = |shape: &[usize]| match shape {
            [n] | [n, 1] => *n == count,
            [n, 2..=MOST_CLASSES] => *n == count && several,
            _ => false,
        };
        let rows = if several { format!(", or [{count}, classes] of 0 and 1") } else { String::new() };
        let expected = format!("[{count}] or [{count}, 1]{rows}");
        let y_name = format!("y_{name}.npy");
        let (y_shape, labels) = self.array(&y_name, false, &is_of_labels, &expected)?;
        if let Some(&classes) = y_shape.get(1).filter(|&&classes| classes > 1) {
            let all = labels.whole();
            if let Some(place) = all.iter().position(|has| !(0..=1).contains(has)) {
                let (row, value) = (place / classes, all[place]);
                return Err(
                    self.refuse(format!("{y_name}: row {row} has the value {value}, expected 0 or 1"))
                );
            }
            let rows = all.into_iter().map(|has| has as u8).collect();
            let rows =
                Array2::from_shape_vec((count, classes), rows).expect("as many values as the shape has");
            let images = Split::of_pixels([height, width, channels], pixels.data, vec![0; count])?;
            return Ok(images.multi_label(rows)?);
        }
        let labels = labels_of(self.path, known.map(|(kind, _)| kind), labels.whole().into_iter())?;
        Ok(Split::of_pixels([height, width, channels], pixels.data, labels)?)
    }

    /// An array and its shape, which `takes` must take; `expected` says what that is. Pixels are bytes.
    fn array(
        &mut self,
        name: &str,
        pixels: bool,
        takes: &dyn Fn(&[usize]) -> bool,
        expected: &str,
    ) -> Result<(Vec<usize>, Numbers)> {
        let wanted = Wanted { pixels, takes, expected, most: self.left };
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name.as_bytes()) else {
            return Err(self.refuse(format!("there is no {name} in it")));
        };
        let read = entry.array(&mut self.file, &wanted);
        let (shape, numbers) = read.map_err(|reason| self.refuse(format!("{name}: {reason}")))?;
        self.left -= numbers.data.len() as u64;
        Ok((shape, numbers))
    }
}

fn is_of_images(shape: &[usize]) -> bool {
    match shape {
        [_, height, width] | [_, height, width, 1 | 3] => {
            [height, width].iter().all(|side| (1..=MOST_ASIDE).contains(*side))
        }
        _ => false,
    }
}

/// What an array must be.
struct Wanted<'a> {
    /// Whether its values are bytes, not just whole numbers.
    pixels: bool,
    takes: &'a dyn Fn(&[usize]) -> bool,
    /// The shapes that it takes, in words.
    expected: &'a str,
    /// The most bytes.
    most: u64,
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
    /// Its array, and the array's shape.
    fn array(&self, file: &mut File, wanted: &Wanted<'_>) -> Result<(Vec<usize>, Numbers), String> {
        let header = bytes_at(file, self.start, 30)?;
        if header[..4] != *b"PK\x03\x04" {
            return Err("the ZIP archive is damaged".to_owned());
        }
        let skipped = number::<2>(&header, 26)? + number::<2>(&header, 28)?;
        file.seek(SeekFrom::Start(self.start + 30 + skipped)).map_err(|error| error.to_string())?;
        let packed = BufReader::with_capacity(1 << 16, file).take(self.packed);
        match self.deflated {
            true => numbers(CrcReader::new(DeflateDecoder::new(packed)), self.crc, wanted),
            false => numbers(CrcReader::new(packed), self.crc, wanted),
        }
    }
}

/// The values of an array.
struct Numbers {
    kind: Whole,
    data: Vec<u8>,
}

impl Numbers {
    fn whole(&self) -> Vec<i64> {
        self.data.chunks_exact(self.kind.bytes).map(|value| self.kind.value(value)).collect()
    }
}

/// A type of whole numbers, as `<i4`.
#[derive(Clone, Copy, PartialEq)]
struct Whole {
    is_big_endian: bool,
    is_signed: bool,
    bytes: usize,
}

/// That of pixels.
const BYTE: Whole = Whole { is_big_endian: false, is_signed: false, bytes: 1 };

impl Whole {
    fn parse(text: &str) -> Option<Self> {
        let (order, kind) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let (sign, bytes) = kind.split_at_checked(1)?;
        let bytes = bytes.parse().ok().filter(|bytes| [1, 2, 4, 8].contains(bytes))?;
        let is_big_endian = match order {
            "<" => false,
            ">" => bytes > 1,
            "" | "|" if bytes == 1 => false,
            _ => return None,
        };
        let is_signed = match sign {
            "i" => true,
            "u" => false,
            _ => return None,
        };
        Some(Whole { is_big_endian, is_signed, bytes })
    }

    /// The number in its bytes. Those too large for an `i64` are the largest one.
    fn value(self, bytes: &[u8]) -> i64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match self.is_big_endian {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        };
        let unused = 64 - 8 * self.bytes;
        match self.is_signed {
            true => (number << unused).cast_signed() >> unused,
            false => i64::try_from(number).unwrap_or(i64::MAX),
        }
    }
}

/// Reads NumPy's format to its end.
fn numbers(
    mut file: CrcReader<impl Read>,
    crc: u32,
    wanted: &Wanted<'_>,
) -> Result<(Vec<usize>, Numbers), String> {
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
    let Wanted { pixels, takes, expected, most } = *wanted;
    let shape = found.shape;
    if found.fortran || !takes(&shape) {
        let (order, remedy) = match found.fortran {
            true => ("columns first", "; save numpy.ascontiguousarray of it"),
            false => ("rows first", ""),
        };
        return Err(format!("it has the shape {shape:?}, {order}, expected {expected}{remedy}"));
    }
    let (type_of, remedy) = match pixels {
        true => (Whole::parse(found.kind).filter(|kind| *kind == BYTE), " from 0 to 255; save it as uint8"),
        false => (Whole::parse(found.kind), "; save it as int64"),
    };
    let unfit = || format!("its values are `{}`, expected whole numbers{remedy}", found.kind);
    let kind = type_of.ok_or_else(unfit)?;
    let len = shape.iter().try_fold(kind.bytes, |len, &size| len.checked_mul(size));
    let Some(len) = len.filter(|&len| len as u64 <= most) else {
        return Err(format!("its shape is {shape:?}, which is more than {most} bytes"));
    };
    let data = read(len)?;
    let mut rest = [0];
    match file.read(&mut rest) {
        Ok(0) if file.crc().sum() == crc => Ok((shape, Numbers { kind, data })),
        Ok(0) => Err("its checksum is wrong".to_owned()),
        Ok(_) => Err("it goes on after its values".to_owned()),
        Err(error) => Err(format!("it is damaged: {error}")),
    }
}

/// The text about an array: `{'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }`.
struct Header<'a> {
    kind: &'a str,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let after = |key: &str| Some(text.split_once(&format!("'{key}':"))?.1.trim_start());
        let kind = after("descr")?.strip_prefix('\'')?.split('\'').next()?;
        let fortran = match after("fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return None,
        };
        let sizes = after("shape")?.strip_prefix('(')?.split(')').next()?;
        let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
        Some(Header { kind, fortran, shape: sizes.map(|size| size.parse().ok()).collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of NumPy's, written by `tests/golden/numpy_npz.py`.
    fn path(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/numpy_npz").join(name)
    }

    #[test]
    fn arrays_of_numpy_are_a_data_set() {
        for (name, channels) in [("grey", 1), ("rgb", 3), ("channel", 1)] {
            let data = read_file(path(&format!("{name}.npz")), 1 << 20).unwrap();
            assert_eq!((data.name.as_str(), data.train.shape()), (name, [3, 4, channels]));
            assert_eq!(data.classes, ["0", "1", "2", "3"]);
            assert_eq!(data.train.labels.to_vec(), [0, 2, 1, 2, 0], "{name}");
            assert_eq!(data.test.labels.to_vec(), [1, 3], "{name}");
            for split in [&data.train, &data.test] {
                for (at, pixel) in split.images.indexed_iter() {
                    let place = (at.1 * 4 + at.2) * channels + at.3;
                    assert_eq!(usize::from(*pixel), (7 * at.0 + 13 * place) % 256, "{name}, {at:?}");
                }
            }
            let validation = data.validation.map(|split| split.labels.to_vec());
            assert_eq!(validation, (name == "channel").then(|| vec![3]));
        }
    }

    /// A single 1 in every row is a class; otherwise an image has any number of them.
    #[test]
    fn rows_of_zeros_and_ones_are_labels() {
        let one = read_file(path("categorical.npz"), 1 << 20).unwrap();
        assert_eq!((one.is_multi_label(), one.classes.len()), (false, 4));
        assert_eq!((one.train.labels.to_vec(), one.test.labels.to_vec()), (vec![0, 2, 1, 2, 0], vec![1, 3]));
        let several = read_file(path("multi_hot.npz"), 1 << 20).unwrap();
        assert_eq!((several.is_multi_label(), several.classes.len()), (true, 3));
        assert_eq!(several.train.class_counts(3), [2, 2, 3]);
        let rows = several.test.multi_hot.unwrap();
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), [1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn other_arrays_are_refused_by_name() {
        for (name, says) in [
            (
                "columns_first",
                "x_train.npy: it has the shape [5, 3, 4], columns first, expected [images, height, width]",
            ),
            ("columns_first", "; save numpy.ascontiguousarray of it"),
            (
                "floats",
                "x_test.npy: its values are `<f8`, expected whole numbers from 0 to 255; save it as uint8",
            ),
            ("float_labels", "y_train.npy: its values are `<f4`, expected whole numbers; save it as int64"),
            ("one_hot", "y_test.npy: its labels have another number of columns than y_train.npy"),
            ("twos", "y_test.npy: row 1 has the value 2, expected 0 or 1"),
            ("no_test_labels", "there is no y_test.npy in it"),
            ("four_channels", "x_train.npy: it has the shape [5, 3, 4, 4], rows first, expected [images,"),
            ("pickled", "y_train.npy: its values are `|O`, expected whole numbers"),
        ] {
            let file = path(&format!("{name}.npz"));
            let error = read_file(&file, 1 << 20).unwrap_err().to_string();
            assert!(error.starts_with(&*file.to_string_lossy()) && error.contains(says), "{error}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        // 60 pixels and five labels to train on, 24 pixels and two labels to test on.
        let most = 60 + 40 + 24 + 16;
        assert!(read_file(path("grey.npz"), most).is_ok());
        let error = read_file(path("grey.npz"), most - 1).unwrap_err().to_string();
        assert!(error.ends_with("y_test.npy: its shape is [2], which is more than 15 bytes"), "{error}");
    }

    #[test]
    fn whole_numbers_of_any_type_are_read() {
        let value = |kind: &str, bytes: &[u8]| Whole::parse(kind).unwrap().value(bytes);
        assert_eq!((value("|i1", &[0xfe]), value("u1", &[0xfe])), (-2, 254));
        assert_eq!((value("<i2", &[1, 2]), value(">i2", &[1, 2])), (513, 258));
        assert_eq!((value(">i4", &[0xff, 0xff, 0xff, 0xf0]), value("<u4", &[0xff; 4])), (-16, (1 << 32) - 1));
        assert_eq!((value("<i8", &[0xff; 8]), value("<u8", &[0xff; 8])), (-1, i64::MAX));
        for other in ["", "1", "<f4", "|b1", "<i3", "|i4", "=i4", "<U1", "<M8[ns]", "|é1"] {
            assert!(Whole::parse(other).is_none(), "{other}");
        }
    }
}
