use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can end a run early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option with a value that makes no sense.
    #[error("{option} is {value}, but must be {accepted}")]
    Option {
        /// The option: its key in backticks, or another name in words.
        option: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A value that the table of options refuses, or a key that it does not have.
    #[error(transparent)]
    Key(#[from] options::Error),
    /// A recipe's file that makes no sense.
    #[error("the recipe {name}: {reason}")]
    Recipe {
        /// The file or, where it has none, the recipe.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A place where the network can't be cut into stages.
    #[error("`devices.split_at`: {0}")]
    Cut(layers::Error),
    /// The loss is not a number any more.
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
    /// A run directory or model file without what is needed.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or wrong, and what to do.
        reason: String,
    },
    /// A folder of pictures that is gone.
    #[error(
        "there is no folder {}, where {named_by} says that its pictures are; give `data.dataset` if they have moved",
        folder.display()
    )]
    Moved {
        /// The folder.
        folder: PathBuf,
        /// What names it.
        named_by: &'static str,
    },
    /// Data other than those of the run that is to go on.
    #[error(
        "these are not the data that the run was trained on: {0}; give those by `data.dataset`, or start a new run"
    )]
    OtherData(String),
    /// A file that can't be read or written.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A picture that can't be read or written.
    #[error("{}: {reason}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A device that is not there.
    #[error("{0}")]
    Device(String),
    /// The data can't be had.
    #[error(transparent)]
    Data(#[from] cifar::Error),
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
    /// A callback failed.
    #[error(transparent)]
    Callback(callbacks::Error),
    /// A checkpoint can't be written or read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Weights of another program that don't fit, or a network that can't be written for one.
    #[error(transparent)]
    Interchange(#[from] interchange::Error),
    /// A GPU or one of its libraries is not there.
    #[error(transparent)]
    Cuda(#[from] tensor_cuda::Error),
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

impl From<callbacks::Error> for Error {
    fn from(error: callbacks::Error) -> Self {
        match error {
            callbacks::Error::Option(error) => error.into(),
            callbacks::Error::Io { action, path, source } => Error::Io { action, path, source },
            callbacks::Error::Checkpoint(error) => error.into(),
            // What a snapshot said that this crate took.
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
