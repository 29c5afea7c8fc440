//! `idx` files, the format of MNIST and of the data sets that took it over: Fashion-MNIST, Kuzushiji-MNIST, EMNIST.
//!
//! A file is a magic number, the sizes of an array, and its bytes: two bytes 0, the type 8 for `u8`, the number of dimensions, and
//! each size as a big-endian `u32`. Images are `[n, rows, columns]`, labels `[n]`. Files may be compressed by gzip; then `.gz` ends
//! their names.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use towers_dataset::{Dataset, Split};
use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::kinds::Kind;

/// The names of the files, without `.gz`.
pub(crate) const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// The most bytes of an array.
const MOST: usize = 2 << 30;
/// The largest height and width of an image.
pub(crate) const MOST_ASIDE: usize = 1024;

/// An array of bytes, and its sizes.
struct Array {
    sizes: Vec<usize>,
    bytes: Vec<u8>,
}

/// The file `name` in `dir`, compressed or not.
pub(crate) fn path_in(dir: &Path, name: &str) -> PathBuf {
    let plain = dir.join(name);
    let packed = dir.join(format!("{name}.gz"));
    if !plain.is_file() && packed.is_file() { packed } else { plain }
}

/// Whether a folder has one of the four files.
///
/// ```
/// assert!(!towers_cifar::idx::is_in("no/such/folder"));
/// ```
pub fn is_in(dir: impl AsRef<Path>) -> bool {
    FILES.iter().any(|name| path_in(dir.as_ref(), name).is_file())
}

/// Reads the four files `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`
/// in `dir`, with or without `.gz`: images of any size with one channel. The classes are called by their numbers.
///
/// Nothing is taken on trust: the sizes, the length of each file, and that both splits have images of one size with a label each.
///
/// # Errors
/// [`Error::Array`] for a file that is something else, or does not fit the others; [`Error::File`].
///
/// ```no_run
/// let characters = towers_cifar::idx::read_dir("data/KMNIST/raw")?;
/// assert_eq!(characters.train.shape(), [28, 28, 1]);
/// # Ok::<(), towers_cifar::Error>(())
/// ```
pub fn read_dir(dir: impl AsRef<Path>) -> Result<Dataset> {
    let dir = dir.as_ref();
    let [train, test] = splits(dir, None)?;
    let classes = usize::from(train.labels.iter().chain(&test.labels).copied().max().unwrap_or(0)) + 1;
    let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy();
    Ok(Dataset::new(name, train, test, (0..classes).map(|class| class.to_string()))?)
}

/// The splits of a known data set.
pub(crate) fn read(kind: Kind, dir: &Path) -> Result<[Split; 2]> {
    splits(dir, Some(kind))
}

fn splits(dir: &Path, kind: Option<Kind>) -> Result<[Split; 2]> {
    let [train_images, train_labels, images, labels] = FILES.map(|name| path_in(dir, name));
    let train = split(&train_images, &train_labels, kind, 0)?;
    let test = split(&images, &labels, kind, 1)?;
    if train.shape() != test.shape() {
        let reason = "its images have another size than those to train on".to_owned();
        return Err(Error::Array { path: images, reason });
    }
    Ok([train, test])
}

/// A split, to train on (0) or to test on (1): of a known data set with its number of images.
fn split(images: &Path, labels: &Path, kind: Option<Kind>, which: usize) -> Result<Split> {
    let refuse = |path: &Path, reason: String| Err(Error::Array { path: path.to_owned(), reason });
    let known = kind.map(|kind| (kind.official().images[which], kind.shape()));
    // The labels come first: they are small, and tell how many images there must be.
    let Array { sizes, bytes: numbers } = array(labels, 1, known.map(|(count, _)| count))?;
    let n = sizes[0];
    if let Some((count, _)) = known.filter(|(count, _)| *count != n) {
        return refuse(labels, format!("it has {n} labels, expected {count}"));
    }
    let expected = known.map(|(count, [rows, columns, _])| count * rows * columns);
    let Array { sizes, bytes } = array(images, 3, expected)?;
    let [found, rows, columns] = [sizes[0], sizes[1], sizes[2]];
    if found != n {
        return refuse(images, format!("it has {found} images, but there are {n} labels"));
    }
    if ![rows, columns].iter().all(|side| (1..=MOST_ASIDE).contains(side)) {
        return refuse(
            images,
            format!("its images are of {rows}x{columns}, expected sides of 1 to {MOST_ASIDE} pixels"),
        );
    }
    if let Some((_, [height, width, _])) = known.filter(|(_, shape)| [rows, columns] != shape[..2]) {
        return refuse(images, format!("its images are of {rows}x{columns}, expected {height}x{width}"));
    }
    let labels = labels_of(labels, kind, numbers.into_iter().map(i64::from))?;
    Ok(Split::of_pixels([rows, columns, 1], bytes, labels)?)
}

/// The labels of a file, all of them below the number of classes of a known data set.
pub(crate) fn labels_of(
    path: &Path,
    kind: Option<Kind>,
    labels: impl ExactSizeIterator<Item = i64>,
) -> Result<Vec<u16>> {
    let classes = kind.map_or(usize::from(u16::MAX) + 1, Kind::classes);
    let checked = |(record, label)| match u16::try_from(label) {
        Ok(value) if usize::from(value) < classes => Ok(value),
        _ => Err(Error::Label { path: path.into(), record, label, classes }),
    };
    labels.enumerate().map(checked).collect()
}

/// The array of a file, with so many dimensions, and so many bytes if that is known.
fn array(path: &Path, dimensions: u8, expected: Option<usize>) -> Result<Array> {
    let (file, found) = open_regular(path)?;
    let packed = path.extension().is_some_and(|ending| ending == "gz");
    let file = BufReader::with_capacity(1 << 18, file);
    match packed {
        true => parse(GzDecoder::new(file), path, dimensions, expected, None),
        false => parse(file, path, dimensions, expected, Some(found)),
    }
}

/// `len` is the length of the file, where it is not compressed.
fn parse(
    mut file: impl Read,
    path: &Path,
    dimensions: u8,
    expected: Option<usize>,
    len: Option<u64>,
) -> Result<Array> {
    let refuse = |reason: String| Error::Array { path: path.to_owned(), reason };
    let mut number = || -> Result<[u8; 4]> {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map_err(|error| refuse(format!("it ends within its sizes: {error}")))?;
        Ok(bytes)
    };
    let magic = number()?;
    if magic != [0, 0, 8, dimensions] {
        let what = if dimensions == 1 { "labels" } else { "images" };
        return Err(refuse(format!(
            "it begins with {magic:?}, but an idx file of {what} begins with [0, 0, 8, {dimensions}]"
        )));
    }
    let sizes: Vec<usize> =
        (0..dimensions).map(|_| Ok(u32::from_be_bytes(number()?) as usize)).collect::<Result<_>>()?;
    let bytes = sizes.iter().try_fold(1_usize, |bytes, &size| bytes.checked_mul(size));
    let most = expected.unwrap_or(MOST);
    let Some(bytes) = bytes.filter(|&bytes| bytes <= most) else {
        return Err(refuse(format!("its sizes are {sizes:?}, which are more than {most} bytes")));
    };
    let head = 4 * (1 + sizes.len() as u64);
    if let Some(found) = len.filter(|&len| len != head + bytes as u64) {
        return Err(refuse(format!("it has {found} bytes, expected {} for {sizes:?}", head + bytes as u64)));
    }
    // Memory grows with what is there, not with what the head promises.
    let mut data = Vec::new();
    let read = file.take(bytes as u64 + 1).read_to_end(&mut data);
    read.map_err(|error| refuse(format!("it is damaged: {error}")))?;
    match data.len() == bytes {
        true => Ok(Array { sizes, bytes: data }),
        false if data.len() < bytes => Err(refuse(format!("it ends after {} of {bytes} bytes", data.len()))),
        false => Err(refuse(format!("it goes on after its {bytes} bytes"))),
    }
}
