use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons for an early end of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid value of an option.
    #[error("{option} is {value}, but must be {accepted}")]
    Option {
        /// The option: its key in backticks, or another name in words.
        option: &'static str,
        /// The value given.
        value: String,
        /// The accepted values.
        accepted: String,
    },
    /// A value that the table of options refuses, or an unknown key.
    #[error(transparent)]
    Key(#[from] options::Error),
    /// An invalid recipe file.
    #[error("the recipe {name}: {reason}")]
    Recipe {
        /// The file; without one, the recipe.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A place where the network can't be cut into stages.
    #[error("`devices.split_at`: {0}")]
    Cut(layers::Error),
    /// The loss is NaN or infinite.
    #[error(
        "the loss became {loss} in epoch {epoch}, step {step}; try a lower `lr`; checkpoints saved before, if any, are kept"
    )]
    NotFinite {
        /// The loss: NaN or infinite.
        loss: f64,
        /// The epoch, from 1.
        epoch: u64,
        /// The step of the epoch, from 1.
        step: u64,
    },
    /// A file or folder that lacks something, or that can't be read or written.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The file or folder.
        path: PathBuf,
        /// The missing or invalid part, and a remedy.
        reason: String,
    },
    /// A folder of pictures that no longer exists.
    #[error(
        "there is no folder {}, where {named_by} expects its pictures; give `data.dataset` if they have moved",
        folder.display()
    )]
    Moved {
        /// The folder.
        folder: PathBuf,
        /// The source of the path.
        named_by: &'static str,
    },
    /// Data other than those of the run to resume.
    #[error(
        "these are not the data that the run was trained on: {0}; give those by `data.dataset`, or start a new run"
    )]
    OtherData(String),
    /// A missing device.
    #[error("{0}")]
    Device(String),
    /// Images or labels that don't fit, or pictures that can't be decoded.
    #[error(transparent)]
    Data(#[from] dataset::Error),
    /// The data are not available.
    #[error(transparent)]
    Fetch(#[from] cifar::Error),
    /// A folder of pictures that can't be read.
    #[error(transparent)]
    Pictures(#[from] pictures::Error),
    /// The augmentation's options don't fit.
    #[error(transparent)]
    Augment(#[from] augment::Error),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] layers::Error),
    /// The optimizer's or schedule's options don't fit.
    #[error(transparent)]
    Optimizer(#[from] optim::Error),
    /// A replica failed.
    #[error(transparent)]
    Parallel(#[from] parallel::Error),
    /// The processes of a run can't find each other, or differ.
    #[error(transparent)]
    Rendezvous(#[from] rendezvous::Error),
    /// Nothing in this build or on this machine can connect the processes of a run.
    #[error("{0}")]
    NoTransport(String),
    /// A callback failed.
    #[error(transparent)]
    Callback(callbacks::Error),
    /// A file or a checkpoint can't be written or read.
    #[error(transparent)]
    File(#[from] checkpoint::Error),
    /// Weights of another program that don't fit, or a network that can't be exported.
    #[error(transparent)]
    Interchange(#[from] interchange::Error),
    /// Another failure of a trained network.
    #[error(transparent)]
    Trained(trained::Error),
    /// A missing GPU or library.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] tensor_cuda::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] program::Error),
}

impl Error {
    /// An [`Error::Option`] for this value.
    pub fn option(option: &'static str, value: impl ToString, accepted: impl Into<String>) -> Error {
        Error::Option { option, value: value.to_string(), accepted: accepted.into() }
    }

    /// An [`Error::File`] about this action with this file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| files::Error::io(action, path)(source).into()
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        checkpoint::Error::from(error).into()
    }
}

impl From<callbacks::Error> for Error {
    fn from(error: callbacks::Error) -> Self {
        match error {
            callbacks::Error::Option(error) => error.into(),
            callbacks::Error::File(error) => error.into(),
            // An error of this crate within one of a snapshot.
            callbacks::Error::Other(error) => match error.downcast::<Error>() {
                Ok(own) => *own,
                Err(error) => Error::Callback(callbacks::Error::Other(error)),
            },
            other => Error::Callback(other),
        }
    }
}

impl From<Error> for callbacks::Error {
    fn from(error: Error) -> Self {
        callbacks::Error::other(error)
    }
}
