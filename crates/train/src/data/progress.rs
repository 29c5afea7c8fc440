use std::fmt;

/// What the loading of data has to tell. Its `Display` is a line for a log.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Of data that are looked for or downloaded.
    Fetch(cifar::Progress<'a>),
    /// Of a folder of pictures.
    Pictures(pictures::Progress<'a>),
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Fetch(progress) => progress.fmt(f),
            Progress::Pictures(progress) => progress.fmt(f),
        }
    }
}
