use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a trained network can't be read, written or used.
///
/// The list is closed, so that other crates can convert each variant into one of theirs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option with a value that makes no sense.
    #[error("{option} is {value}, but must be {accepted}")]
    Option {
        /// The option, as on the command line.
        option: &'static str,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: String,
    },
    /// A name that none of the built-in networks has.
    #[error("--network is `{name}`, but must be one of {}", models::NAMES.join(", "))]
    UnknownNetwork {
        /// The name.
        name: String,
    },
    /// A run directory or model file that is incomplete or wrong.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or wrong, and what to do.
        reason: String,
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
    pub(crate) fn option(option: &'static str, value: impl ToString, accepted: impl Into<String>) -> Error {
        Error::Option { option, value: value.to_string(), accepted: accepted.into() }
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        checkpoint::Error::from(error).into()
    }
}
