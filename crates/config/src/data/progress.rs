use std::fmt;

/// The progress of loading data. Its `Display` is a line for a log.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The data are found or downloaded.
    Fetch(towers_cifar::Progress<'a>),
    /// The pictures of a folder are found and read.
    Pictures(towers_pictures::Progress<'a>),
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Fetch(progress) => progress.fmt(f),
            Progress::Pictures(progress) => progress.fmt(f),
        }
    }
}
