use options::{Message, message};
use std::fmt::Display;
use std::path::Path;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons for an early end of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options, files, data or a network that don't fit; a callback, a file or a device that fails.
    #[error(transparent)]
    Config(config::Error),
    /// The loss is NaN or infinite.
    #[error("{}", self.message())]
    NotFinite {
        /// The loss: NaN or infinite.
        loss: f64,
        /// The epoch, from 1.
        epoch: u64,
        /// The step of the epoch, from 1.
        step: u64,
    },
    /// Data other than those of the run to resume.
    #[error("{}", self.message())]
    OtherData(String),
    /// A missing device, one with too little memory, or one with wrong results.
    #[error("{0}")]
    Device(Message),
    /// A replica failed.
    #[error(transparent)]
    Parallel(#[from] parallel::Error),
    /// The processes of a run can't find each other, or differ.
    #[error(transparent)]
    Rendezvous(#[from] rendezvous::Error),
    /// Nothing in this build or on this machine can connect the processes of a run.
    #[error("{0}")]
    NoTransport(String),
    /// A missing GPU or library.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] tensor_cuda::Error),
}

impl Error {
    /// The option with this key has a value other than the accepted ones.
    pub fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        config::Error::option(key, value, accepted).into()
    }

    /// Something that is no option, such as the number of samples, has a value other than the accepted ones.
    pub fn about(what: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        config::Error::about(what, value, accepted).into()
    }

    /// About a file or folder that lacks something.
    pub fn run(path: impl AsRef<Path>, reason: impl Into<Message>) -> Error {
        config::Error::run(path, reason).into()
    }

    /// About this action with this file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| config::Error::io(action, path)(source).into()
    }

    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Config(error) => error.message(),
            Error::NotFinite { loss, epoch, step } => message!(
                "the loss became {loss} in epoch {epoch}, step {step}; try a lower ",
                ["lr"],
                "; checkpoints saved before, if any, are kept"
            ),
            Error::OtherData(differs) => message!(
                "these are not the data that the run was trained on: {differs}; give those by ",
                ["data.dataset"],
                ", or start a new run"
            ),
            Error::Device(message) => message.clone(),
            other => other.to_string().into(),
        }
    }
}

/// Errors of the crates below are those of a configuration.
macro_rules! of_config {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::Config(error.into())
            }
        }
    )+};
}

of_config!(
    options::Error,
    dataset::Error,
    augment::Error,
    layers::Error,
    optim::Error,
    checkpoint::Error,
    files::Error,
    program::Error,
    trained::Error,
);

impl From<config::Error> for Error {
    fn from(error: config::Error) -> Self {
        match error {
            // An error of this crate within one of a snapshot.
            config::Error::Callback(error) => error.into(),
            other => Error::Config(other),
        }
    }
}

impl From<diagnose::Error> for Error {
    fn from(error: diagnose::Error) -> Self {
        use diagnose::Error as Lower;
        match error {
            Lower::Network(error) => error.into(),
            Lower::Tensor(error) => error.into(),
            Lower::Parallel(error) => error.into(),
            other => Error::Device(other.message()),
        }
    }
}

impl From<callbacks::Error> for Error {
    fn from(error: callbacks::Error) -> Self {
        match error {
            callbacks::Error::Other(error) => match error.downcast::<Error>() {
                Ok(own) => *own,
                Err(error) => Error::Config(config::Error::Callback(callbacks::Error::Other(error))),
            },
            other => Error::Config(other.into()),
        }
    }
}

impl From<Error> for callbacks::Error {
    fn from(error: Error) -> Self {
        callbacks::Error::other(error)
    }
}
