use options::Message;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a trained network can't be read, written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or something about the data, with a value that makes no sense.
    #[error(transparent)]
    Option(#[from] options::Error),
    /// A run directory or model file that is incomplete or wrong.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or wrong, and what to do.
        reason: Message,
    },
    /// Pictures can't be decoded.
    #[error(transparent)]
    Data(#[from] dataset::Error),
    /// The augmentation's options don't fit.
    #[error(transparent)]
    Augment(#[from] augment::Error),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] layers::Error),
    /// A file can't be written or read.
    #[error(transparent)]
    File(#[from] checkpoint::Error),
    /// Weights of another program don't fit, or a network can't be written for one.
    #[error(transparent)]
    Interchange(#[from] interchange::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] program::Error),
}

impl Error {
    /// An [`Error::Option`] for a key.
    pub(crate) fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        options::Error::value(key, value, accepted).into()
    }

    /// An [`Error::Run`] about this file or folder.
    pub(crate) fn run(path: impl AsRef<Path>, reason: impl Into<Message>) -> Error {
        Error::Run { path: path.as_ref().to_owned(), reason: reason.into() }
    }

    /// An [`Error::Option`] for something that is no option.
    pub(crate) fn about(what: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        options::Error::about(what, value, accepted).into()
    }

    /// An [`Error::Option`] for a name that none of [`models::NAMES`] has. `or` names what else is accepted.
    pub fn unknown_network(key: &'static str, name: &str, or: &str) -> Error {
        let accepted =
            format!("one of {}{or}{}", models::NAMES.join(", "), options::hint(name, models::NAMES));
        Error::option(key, format_args!("`{name}`"), accepted)
    }

    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Option(error) => error.message(),
            Error::Run { path, reason } => Message::from(format!("{}: ", path.display())).and(reason.clone()),
            other => other.to_string().into(),
        }
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        checkpoint::Error::from(error).into()
    }
}
