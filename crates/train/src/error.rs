use std::fmt::Display;
use std::path::Path;
use towers_options::{Message, message};

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons for an early end of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options, files, data or a network that don't fit; a callback, a file or a device that fails.
    #[error(transparent)]
    Config(towers_config::Error),
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
    Parallel(#[from] towers_parallel::Error),
    /// The processes of a run can't find each other, or differ.
    #[error(transparent)]
    Rendezvous(#[from] towers_rendezvous::Error),
    /// Nothing in this build or on this machine can connect the processes of a run.
    #[error("{0}")]
    NoTransport(String),
    /// A missing GPU or library.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] towers_tensor_cuda::Error),
}

impl Error {
    /// The option with this key has a value other than the accepted ones.
    pub fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_config::Error::option(key, value, accepted).into()
    }

    /// Something that is no option, such as the number of samples, has a value other than the accepted ones.
    pub fn about(what: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_config::Error::about(what, value, accepted).into()
    }

    /// About a file or folder that lacks something.
    pub fn run(path: impl AsRef<Path>, reason: impl Into<Message>) -> Error {
        towers_config::Error::run(path, reason).into()
    }

    /// About this action with this file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| towers_config::Error::io(action, path)(source).into()
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
                ", ",
                ["data.labels"],
                " or ",
                ["data.train_dir"],
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
    towers_options::Error,
    towers_dataset::Error,
    towers_augment::Error,
    towers_layers::Error,
    towers_optim::Error,
    towers_checkpoint::Error,
    towers_files::Error,
    towers_program::Error,
    towers_trained::Error,
);

impl From<towers_config::Error> for Error {
    fn from(error: towers_config::Error) -> Self {
        match error {
            // An error of this crate within one of a snapshot.
            towers_config::Error::Callback(error) => error.into(),
            other => Error::Config(other),
        }
    }
}

impl From<towers_diagnose::Error> for Error {
    fn from(error: towers_diagnose::Error) -> Self {
        use towers_diagnose::Error as Lower;
        match error {
            Lower::Network(error) => error.into(),
            Lower::Tensor(error) => error.into(),
            Lower::Parallel(error) => error.into(),
            other => Error::Device(other.message()),
        }
    }
}

impl From<towers_callbacks::Error> for Error {
    fn from(error: towers_callbacks::Error) -> Self {
        match error {
            towers_callbacks::Error::Other(error) => match error.downcast::<Error>() {
                Ok(own) => *own,
                Err(error) => {
                    Error::Config(towers_config::Error::Callback(towers_callbacks::Error::Other(error)))
                }
            },
            other => Error::Config(other.into()),
        }
    }
}

impl From<Error> for towers_callbacks::Error {
    fn from(error: Error) -> Self {
        towers_callbacks::Error::other(error)
    }
}
