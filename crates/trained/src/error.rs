use std::fmt::Display;
use std::path::{Path, PathBuf};
use towers_options::Message;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a trained network can't be read, written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or something about the data, with a value that makes no sense.
    #[error(transparent)]
    Option(#[from] towers_options::Error),
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
    Data(#[from] towers_dataset::Error),
    /// The augmentation's options don't fit.
    #[error(transparent)]
    Augment(#[from] towers_augment::Error),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] towers_layers::Error),
    /// A file can't be written or read.
    #[error(transparent)]
    File(#[from] towers_checkpoint::Error),
    /// Weights of another program don't fit, or a network can't be written for one.
    #[error(transparent)]
    Interchange(#[from] towers_interchange::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] towers_program::Error),
}

impl Error {
    /// An [`Error::Option`] for a key.
    pub(crate) fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_options::Error::value(key, value, accepted).into()
    }

    /// An [`Error::Run`] about this file or folder.
    pub(crate) fn run(path: impl AsRef<Path>, reason: impl Into<Message>) -> Error {
        Error::Run { path: path.as_ref().to_owned(), reason: reason.into() }
    }

    /// An [`Error::Option`] for something that is no option.
    pub(crate) fn about(what: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_options::Error::about(what, value, accepted).into()
    }

    /// An [`Error::Option`] for a name that none of [`towers_models::NAMES`] has. `or` names what else is accepted.
    pub fn unknown_network(key: &'static str, name: &str, or: &str) -> Error {
        let accepted = format!(
            "one of {}{or}{}",
            towers_models::NAMES.join(", "),
            towers_options::hint(name, towers_models::NAMES)
        );
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

impl From<towers_files::Error> for Error {
    fn from(error: towers_files::Error) -> Self {
        towers_checkpoint::Error::from(error).into()
    }
}
