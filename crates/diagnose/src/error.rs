use towers_options::Message;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons why a device is not known to be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A wrong result, and what may help.
    #[error("{0}")]
    Wrong(Message),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] towers_layers::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] towers_program::Error),
    /// Replicas can't add up.
    #[error(transparent)]
    Parallel(#[from] towers_parallel::Error),
}

impl Error {
    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Wrong(message) => message.clone(),
            other => other.to_string().into(),
        }
    }
}

impl From<Error> for Message {
    fn from(error: Error) -> Message {
        error.message()
    }
}
