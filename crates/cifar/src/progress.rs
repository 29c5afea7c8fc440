//! What a fetch has to tell while it runs.

use std::fmt;
use std::path::Path;

use crate::Error;

/// A report of [`Cifar::load`](crate::Cifar::load) or [`Cifar::fetch`](crate::Cifar::fetch) to the function
/// that [`Cifar::progress`](crate::Cifar::progress) was given.
///
/// Its `Display` is a line for a log; a progress bar follows [`Progress::Downloading`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Files that look like the data are there, but can't be used.
    Rejected {
        /// Why.
        reason: &'a Error,
    },
    /// Another process is fetching into the same folder; this one waits for it.
    Waiting {
        /// The folder.
        dir: &'a Path,
    },
    /// A connection is being made.
    Connecting {
        /// Where to.
        url: &'a str,
        /// The bytes that an earlier download has left on disk.
        resume_at: u64,
    },
    /// No official checksum is known for this address. The contents are checked as strictly as ever.
    NoChecksum {
        /// The address.
        url: &'a str,
    },
    /// Bytes have arrived.
    Downloading {
        /// Where from.
        url: &'a str,
        /// The bytes on disk, those of earlier downloads included.
        bytes: u64,
        /// The size of the archive, if the server or the source tells it.
        total: Option<u64>,
    },
    /// A source is left for the next one, or tried again.
    Failed {
        /// Why.
        reason: &'a Error,
    },
    /// A source crawls, and is left for one that may be faster.
    Slow {
        /// The source.
        url: &'a str,
        /// What it sent in a second.
        bytes_per_second: u64,
    },
    /// The archive is complete and is being unpacked and checked.
    Unpacking {
        /// The archive's address or path.
        archive: &'a str,
    },
    /// Unusable files stood where the data belongs and were moved aside.
    MovedAside {
        /// Where they are now.
        to: &'a Path,
    },
    /// The data is there and has been checked.
    Ready {
        /// The folder of the batch files.
        dir: &'a Path,
    },
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        match *self {
            Progress::Rejected { reason } => write!(f, "not used: {reason}"),
            Progress::Waiting { dir } => {
                write!(f, "waiting for the process that fetches into {}", dir.display())
            }
            Progress::Connecting { url, resume_at: 0 } => write!(f, "connecting to {url}"),
            Progress::Connecting { url, resume_at } => {
                write!(f, "connecting to {url}, to continue after {:.1} MB", mb(resume_at))
            }
            Progress::NoChecksum { url } => {
                write!(f, "no checksum is known for {url}; the contents are checked all the same")
            }
            Progress::Downloading { bytes, total: Some(total), .. } => {
                write!(f, "{:.1} of {:.1} MB", mb(bytes), mb(total))
            }
            Progress::Downloading { bytes, total: None, .. } => write!(f, "{:.1} MB", mb(bytes)),
            Progress::Failed { reason } => write!(f, "{reason}"),
            Progress::Slow { url, bytes_per_second } => {
                write!(f, "{url} sends {} kB/s only; trying the next source", bytes_per_second / 1000)
            }
            Progress::Unpacking { archive } => write!(f, "unpacking and checking {archive}"),
            Progress::MovedAside { to } => write!(f, "unusable files were moved to {}", to.display()),
            Progress::Ready { dir } => write!(f, "found in {}", dir.display()),
        }
    }
}

/// The function that receives the progress.
pub(crate) type Listener<'a> = dyn FnMut(Progress<'_>) + 'a;
