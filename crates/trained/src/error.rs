use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a trained network can't be read, written or used.
///
/// The list is closed, so that other crates can convert each variant into one of theirs.
#[derive(Debug, thiserror::Error)]
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
    /// A file that can't be read or written.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Pictures can't be decoded.
    #[error(transparent)]
    Data(#[from] cifar::Error),
    /// The augmentation's options don't fit.
    #[error(transparent)]
    Augment(#[from] augment::Error),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] layers::Error),
    /// The tensors can't be written or read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Weights of another program don't fit, or a network can't be written for one.
    #[error(transparent)]
    Interchange(#[from] interchange::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] program::Error),
}

impl Error {
    /// An [`Error::Io`] for a file.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { action, path, source }
    }
}
