use towers_options::Message;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons why a folder or a file can't be that of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path that can't be used: another one must be named.
    #[error("{0}")]
    Refused(Message),
    /// Another run is in the way, or the system refuses.
    #[error("{0}")]
    Failed(Message),
    /// A file that can't be read.
    #[error(transparent)]
    File(#[from] towers_files::Error),
}

impl Error {
    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Refused(message) | Error::Failed(message) => message.clone(),
            Error::File(error) => error.to_string().into(),
        }
    }
}
