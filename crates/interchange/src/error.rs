use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The errors of a file of weights, or of a network to export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that can't be read, or tensors that can't be put together.
    #[error(transparent)]
    Io(#[from] towers_checkpoint::Error),
    /// A device that does not give a network's parameters.
    #[error(transparent)]
    Device(#[from] towers_program::Error),
    /// A file of another format or content.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Weights of another network than the one they are meant for.
    #[error("{}: {reason}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The first thing that differs.
        reason: String,
    },
    /// A network with something that another program's format has no words for.
    #[error("the layer `{layer}` can't be written for {target}: {reason}")]
    Export {
        /// The layer.
        layer: String,
        /// The other program.
        target: &'static str,
        /// The obstacle.
        reason: String,
    },
    /// A network without one of its tensors.
    #[error("there is no tensor `{name}` of shape {shape:?} among the weights")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// The shape that the network needs.
        shape: Vec<usize>,
    },
}

impl From<towers_files::Error> for Error {
    fn from(error: towers_files::Error) -> Self {
        towers_checkpoint::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Error {
        Error::File { path: path.to_owned(), reason: reason.into() }
    }
}
