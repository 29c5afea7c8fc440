//! What can go wrong.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use image::ImageError;
use image::error::{ImageFormatHint, UnsupportedErrorKind};

use crate::Kind;

/// What would have the data fetched.
const FETCHING: &str = if cfg!(feature = "download") {
    "allow fetching"
} else {
    "build `cifar` with its feature `download`, which fetches it"
};

/// The most pictures that an error lists.
const LISTED: usize = 10;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, one variant a cause, with the file or address it happened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Your own [split](crate::Split::new) has another number of labels than of images.
    #[error("there are {images} images, but {labels} labels")]
    Labels {
        /// The number of images.
        images: usize,
        /// The number of labels.
        labels: usize,
    },

    /// The operating system refused to `action` a file or folder.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// Pictures of a folder that would take more memory than there is.
    #[error(
        "{}: {pictures} pictures of {size} take {}, but {} of memory are free; choose a smaller image size, or limit the number of pictures",
        path.display(), gigabytes(*needed), gigabytes(*free)
    )]
    Memory {
        /// The folder.
        path: PathBuf,
        /// How many pictures there are, within the limits.
        pictures: usize,
        /// Their rows and columns in memory, as in `48x40`.
        size: String,
        /// The bytes that they take.
        needed: u64,
        /// The bytes that there are.
        free: u64,
    },

    /// A batch file is truncated, too long, or no file at all.
    #[error("{} has {found} bytes, expected {expected}; it is truncated or not a CIFAR file", path.display())]
    FileSize {
        /// The file.
        path: PathBuf,
        /// The size that its records take, or for a file of free form the most it may have.
        expected: u64,
        /// The size on disk.
        found: u64,
    },

    /// A file of arrays, as MNIST's, that is damaged or holds something else.
    #[error("{}: {reason}", path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A number of channels that no picture can have.
    #[error("pictures can't have {channels} channels, only 1 for grey, or 3 for red, green and blue")]
    Channels {
        /// The number.
        channels: usize,
    },

    /// A label that names no class.
    #[error("{}: record {record} has label {label}, expected one below {classes}", path.display())]
    Label {
        /// The file.
        path: PathBuf,
        /// The record, counted from 0.
        record: usize,
        /// The label found.
        label: i64,
        /// The number of classes.
        classes: usize,
    },

    /// A split without a single image of some class, which no known data set has.
    #[error("{}: the {split} split has no image of class `{class}`; these are not the official files", dir.display())]
    MissingClass {
        /// The folder of batch files.
        dir: PathBuf,
        /// `train` or `test`.
        split: &'static str,
        /// The class.
        class: String,
    },

    /// A batch file of the python layout that is no pickle, or holds something else than a batch.
    #[error("{}: not a CIFAR batch, at byte {offset}: {reason}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// Where reading stopped.
        offset: usize,
        /// What was found there.
        reason: String,
    },

    /// An archive that is damaged, hostile, or holds something else.
    #[error("{archive}: {reason}; nothing of it was kept")]
    Archive {
        /// Its address, or its path.
        archive: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A server that can't be resolved, reached, or understood, or that fell silent.
    #[error("{url}: {reason}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What went wrong.
        reason: String,
    },

    /// A server that answered with something else than the file.
    #[error("{url}: the server answered with HTTP status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status, e.g. 404.
        status: u16,
    },

    /// A download of the wrong size: another file, or an error page.
    #[error("{url}: the download has {found} bytes, expected {expected}")]
    DownloadSize {
        /// What was asked for.
        url: String,
        /// The size it should have, or the most it may have where that is not known.
        expected: u64,
        /// The size that the server announced or sent.
        found: u64,
    },

    /// A download that isn't compressed by gzip, most often a web page.
    #[error("{url}: not a {} file; it begins with {start:?}", if url.ends_with(".tar.gz") {".tar.gz"} else {".gz"})]
    NotAnArchive {
        /// What was asked for.
        url: String,
        /// Its first bytes.
        start: String,
    },

    /// A connection that ended early. The bytes that arrived are kept, and the next attempt continues after
    /// them.
    #[error("{url}: the connection was cut after {found} bytes; run again to continue from there")]
    Cut {
        /// What was asked for.
        url: String,
        /// The bytes that are on disk.
        found: u64,
    },

    /// A source with a checksum that is none.
    #[error("{url}: the MD5 to compare with is `{md5}`, but must have 32 hexadecimal digits")]
    NoMd5 {
        /// The source.
        url: String,
        /// What was given.
        md5: String,
    },

    /// A complete download with the wrong checksum. It was deleted.
    #[error("{url}: MD5 is {found}, expected {expected}; the download was deleted")]
    Checksum {
        /// What was asked for.
        url: String,
        /// The official checksum, in hexadecimal.
        expected: String,
        /// The checksum of the bytes that arrived, in hexadecimal.
        found: String,
    },

    /// No data on this machine, and none was to be fetched.
    #[error(
        "no usable {kind} was found{}; name the folder with its files (or its parent) as the data folder, put {} into it, or \
         {FETCHING}",
        Looked { places: looked, rejected },
        official(*kind)
    )]
    NotFound {
        /// Which data set.
        kind: Kind,
        /// The folders that were looked into.
        looked: Vec<PathBuf>,
        /// What was there but not usable, each with the reason.
        rejected: Vec<String>,
    },

    /// No data on this machine, and every source failed.
    #[error(
        "{kind} can't be downloaded{}; check the network and run again (a download continues where it \
         stopped), name another address, or put {} into the data folder",
        by_reason(failures),
        official(*kind)
    )]
    NoSource {
        /// Which data set.
        kind: Kind,
        /// Why each source failed, in the order they were tried.
        failures: Vec<String>,
    },

    /// A picture that can't be decoded.
    #[error("can't decode the picture {}: {}", path.display(), why(source))]
    Image {
        /// The file.
        path: PathBuf,
        /// The decoder's reason.
        source: ImageError,
    },

    /// Several pictures that can't be decoded or read, in their order.
    #[error("{} pictures can't be decoded: {}; get them again, or leave them out", _0.len(), listed(_0))]
    Pictures(Vec<Error>),

    /// A height and width that no picture can be scaled to.
    #[error(
        "pictures can't be scaled to {height}x{width} (height x width), only to sides of 1 to {most} pixels"
    )]
    Size {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// The most of either.
        most: u32,
    },

    /// Folders that look like splits of a data set, but are none, or too many.
    #[error("{}: {reason}", path.display())]
    Splits {
        /// The data set's folder.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        reason: String,
    },

    /// A folder that does not hold folders of pictures.
    #[error(
        "{}: {reason}; expected a folder for each class with pictures, or `train` and `test` \
         folders that hold such folders",
        path.display()
    )]
    ClassFolders {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// `: address: reason` of each source, if there are any; those of one reason together, as when there is no
/// network at all.
fn by_reason(failures: &[String]) -> String {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for failure in failures {
        let (address, reason) = failure.split_once(": ").unwrap_or((failure, ""));
        match reasons.iter_mut().find(|(_, other)| *other == reason) {
            Some((addresses, _)) => addresses.push(address),
            None => reasons.push((vec![address], reason)),
        }
    }
    let tell = |(addresses, reason): &(Vec<&str>, &str)| format!("{}: {reason}", addresses.join(", "));
    let told = reasons.iter().map(tell).collect::<Vec<_>>().join("; ");
    if told.is_empty() { told } else { format!(": {told}") }
}

/// The files of a data set, as they can be had.
fn official(kind: Kind) -> &'static str {
    match kind {
        Kind::Cifar10 | Kind::Cifar100 => "the official .tar.gz archive",
        Kind::Mnist => "the four official .gz files or Keras' mnist.npz",
        Kind::FashionMnist => "the four official .gz files",
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

impl Error {
    /// The picture that can't be decoded, and why, without the remedy.
    pub(crate) fn of_picture(&self) -> (PathBuf, String) {
        match self {
            Error::Image { path, source } => {
                let why = why(source);
                (path.clone(), why.split(';').next().unwrap_or_default().to_owned())
            }
            Error::Io { path, source, .. } => (path.clone(), source.to_string()),
            other => (PathBuf::new(), other.to_string()),
        }
    }

    /// For `map_err`: the action and the file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }
}

/// The part of [`Error::NotFound`]'s sentence that names the searched places.
struct Looked<'a> {
    places: &'a [PathBuf],
    rejected: &'a [String],
}

impl fmt::Display for Looked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, place) in self.places.iter().enumerate() {
            write!(f, "{}{}", if k == 0 { " (looked in " } else { ", " }, place.display())?;
        }
        f.write_str(if self.places.is_empty() { "" } else { ")" })?;
        self.rejected.iter().try_for_each(|reason| write!(f, "; {reason}"))
    }
}

/// The first of several pictures, with their reasons.
fn listed(errors: &[Error]) -> String {
    let reason = |error: &Error| {
        let (path, why) = error.of_picture();
        format!("{}: {why}", path.display())
    };
    let mut shown: Vec<String> = errors.iter().take(LISTED).map(reason).collect();
    if errors.len() > LISTED {
        shown.push(format!("and {} more", errors.len() - LISTED));
    }
    shown.join("; ")
}

/// Why a picture can't be decoded, and the remedy.
fn why(source: &ImageError) -> String {
    const MEND: &str = "get it again, or leave it out";
    match source {
        ImageError::Unsupported(what) if matches!(what.kind(), UnsupportedErrorKind::Format(_)) => {
            let found = match what.format_hint() {
                ImageFormatHint::Exact(format) => format!("it is {format:?}"),
                _ => "it is no picture".to_owned(),
            };
            format!("{found}, whatever its name says, not PNG, JPEG, WebP, BMP or GIF; convert it, or {MEND}")
        }
        ImageError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("it is cut off; {MEND}")
        }
        ImageError::IoError(_) => source.to_string(),
        ImageError::Limits(_) => format!("it is too large: {source}; make it smaller, or {MEND}"),
        _ => format!("{source}; {MEND}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_fail_for_one_reason_are_told_together() {
        let failures =
            ["https://a/x: no such host", "https://b/x: HTTP status 404", "https://c/x: no such host"];
        let error = Error::NoSource { kind: Kind::Cifar10, failures: failures.map(String::from).to_vec() };
        let text = error.to_string();
        let begins = "CIFAR-10 can't be downloaded: https://a/x, https://c/x: no such host; https://b/x: HTTP status 404; check";
        assert!(text.starts_with(begins), "{text}");
    }
}
