use crate::shortened;
use std::error::Error as StdError;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use towers_options::Message;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a callback fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option with a value that makes no sense.
    #[error(transparent)]
    Option(#[from] towers_options::Error),
    /// A picture that can't be drawn or written.
    #[error("{}: {reason}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file that is no history of epochs.
    #[error("{}: this is not a history of `towers train`", .0.display())]
    NoHistory(PathBuf),
    /// A file that a run would continue, and that has another content.
    #[error("{}", self.message())]
    OtherLog {
        /// The file.
        path: PathBuf,
        /// Its first line.
        found: String,
        /// The first line of the log.
        expected: String,
        /// What helps.
        remedy: Message,
    },
    /// A file or a checkpoint can't be written or read.
    #[error(transparent)]
    File(#[from] towers_checkpoint::Error),
    /// Any other error of an [`Observer`](crate::Observer) or a [`Snapshot`](crate::Snapshot).
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
}

impl Error {
    /// An [`Error::File`] about this action with this file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| towers_files::Error::io(action, path)(source).into()
    }

    /// An error of a custom observer.
    pub fn other(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// Refuses the content of a file that is not empty and does not begin with the `header` of a log.
    pub(crate) fn unless_log(path: &Path, text: &str, header: &str, remedy: Message) -> Result<()> {
        let first = text.lines().next().unwrap_or_default();
        if text.is_empty() || first == header {
            return Ok(());
        }
        let found = shortened(first);
        Err(Error::OtherLog { path: path.to_owned(), found, expected: header.to_owned(), remedy })
    }

    /// An [`Error::Option`] for a key.
    pub(crate) fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Self {
        towers_options::Error::value(key, value, accepted).into()
    }

    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Option(error) => error.message(),
            Error::OtherLog { path, found, expected, remedy } => {
                let differs = format!("its first line is `{found}`, but this log begins with `{expected}`; ");
                Message::from(format!("{}: {differs}", path.display())).and(remedy.clone())
            }
            other => other.to_string().into(),
        }
    }
}

impl From<towers_files::Error> for Error {
    fn from(error: towers_files::Error) -> Self {
        towers_checkpoint::Error::from(error).into()
    }
}
