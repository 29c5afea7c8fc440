//! What can go wrong.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::Kind;

/// What would have the data fetched.
const FETCHING: &str = if cfg!(feature = "download") {
    "allow fetching"
} else {
    "build `cifar` with its feature `download`, which fetches it"
};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, one variant a cause, with the file or address it happened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write a file or folder.
    #[error(transparent)]
    File(#[from] towers_files::Error),

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
        kind.official().wanted
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
        kind.official().wanted
    )]
    NoSource {
        /// Which data set.
        kind: Kind,
        /// Why each source failed, in the order they were tried.
        failures: Vec<String>,
    },

    /// Images or labels that are no data set, or can't be resized.
    #[error(transparent)]
    Data(#[from] towers_dataset::Error),
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

impl Error {
    /// For `map_err`: the action and the file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| towers_files::Error::io(action, path)(source).into()
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
