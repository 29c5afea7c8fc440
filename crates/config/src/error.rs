use crate::augmentation::TABLE;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use towers_options::{Message, message};

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The reasons for refusing a configuration, its files, or its data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or something about the data, with a value that makes no sense.
    #[error(transparent)]
    Option(#[from] towers_options::Error),
    /// An invalid recipe file.
    #[error("the recipe {name}: {reason}")]
    Recipe {
        /// The file; without one, the recipe.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A place where the network can't be cut into stages.
    #[error("{}", self.message())]
    Cut(towers_layers::Error),
    /// A file or folder that lacks something, or that can't be read or written.
    #[error("{}", self.message())]
    Run {
        /// The file or folder.
        path: PathBuf,
        /// The missing or invalid part, and a remedy.
        reason: Message,
    },
    /// A folder of pictures, or a file of data, that no longer exists.
    #[error("{}", self.message())]
    Moved {
        /// The folder or file.
        folder: PathBuf,
        /// The key of its option.
        option: &'static str,
        /// The source of the path.
        named_by: &'static str,
    },
    /// Images or labels that don't fit, or pictures that can't be decoded.
    #[error(transparent)]
    Data(#[from] towers_dataset::Error),
    /// The data are not available.
    #[error(transparent)]
    Fetch(#[from] towers_cifar::Error),
    /// Pictures that can't be read.
    #[error("{}", self.message())]
    Pictures(#[from] towers_pictures::Error),
    /// The augmentation's options don't fit.
    #[error("{}", self.message())]
    Augment(#[from] towers_augment::Error),
    /// The network can't be built or run.
    #[error(transparent)]
    Network(#[from] towers_layers::Error),
    /// The optimizer's or schedule's options don't fit.
    #[error(transparent)]
    Optimizer(#[from] towers_optim::Error),
    /// A callback failed.
    #[error(transparent)]
    Callback(towers_callbacks::Error),
    /// A file or a checkpoint can't be written or read.
    #[error(transparent)]
    File(#[from] towers_checkpoint::Error),
    /// Weights of another program that don't fit, or a network that can't be exported.
    #[error(transparent)]
    Interchange(#[from] towers_interchange::Error),
    /// Another failure of a trained network.
    #[error(transparent)]
    Trained(towers_trained::Error),
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] towers_program::Error),
}

impl Error {
    /// An [`Error::Option`] for the option with this key.
    pub fn option(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_options::Error::value(key, value, accepted).into()
    }

    /// An [`Error::Option`] for something that is no option, such as the number of classes of the data.
    pub fn about(what: &'static str, value: impl Display, accepted: impl Into<Message>) -> Error {
        towers_options::Error::about(what, value, accepted).into()
    }

    /// An [`Error::Run`] about this file or folder.
    pub fn run(path: impl AsRef<Path>, reason: impl Into<Message>) -> Error {
        Error::Run { path: path.as_ref().to_owned(), reason: reason.into() }
    }

    /// An [`Error::File`] about this action with this file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| towers_files::Error::io(action, path)(source).into()
    }

    /// The sentence, with the keys of options in it.
    pub fn message(&self) -> Message {
        match self {
            Error::Option(error) => error.message(),
            Error::Callback(error) => error.message(),
            // Layers have names of the user's own.
            Error::Cut(error) => message!(["devices.split_at"], ": {error}"),
            Error::Run { path, reason } => Message::from(format!("{}: ", path.display())).and(reason.clone()),
            Error::Moved { folder, option, named_by } => {
                let kind = if folder.extension().is_some() { "file" } else { "folder" };
                let folder = folder.display();
                message!(
                    "there is no {kind} {folder}, where {named_by} expects its pictures; give ",
                    [*option],
                    " if they have moved"
                )
            }
            Error::Augment(towers_augment::Error::Option { option, value, accepted }) => {
                of_augmentation(option).and(format!(" is {value}, but it must be {accepted}"))
            }
            Error::Augment(error) => error.to_string().into(),
            Error::Pictures(error @ towers_pictures::Error::Columns { .. }) => {
                Message::from(error.to_string()).and(message!(" by ", ["data.label_columns"]))
            }
            Error::Pictures(error) => error.to_string().into(),
            other => other.to_string().into(),
        }
    }
}

/// An option of the augmentation, which a pipeline may also have outside of a configuration.
fn of_augmentation(option: &str) -> Message {
    match TABLE.options.iter().find(|known| known.name == option) {
        Some(known) => Message::key(TABLE.key_of(known)),
        None => format!("`{option}`").into(),
    }
}

impl From<towers_files::Error> for Error {
    fn from(error: towers_files::Error) -> Self {
        towers_checkpoint::Error::from(error).into()
    }
}

impl From<towers_callbacks::Error> for Error {
    fn from(error: towers_callbacks::Error) -> Self {
        match error {
            towers_callbacks::Error::Option(error) => error.into(),
            towers_callbacks::Error::File(error) => error.into(),
            other => Error::Callback(other),
        }
    }
}

impl From<towers_trained::Error> for Error {
    fn from(error: towers_trained::Error) -> Self {
        use towers_trained::Error as Lower;
        match error {
            Lower::Option(error) => error.into(),
            Lower::Run { path, reason } => Error::Run { path, reason },
            Lower::Data(error) => error.into(),
            Lower::Augment(error) => error.into(),
            Lower::Network(error) => error.into(),
            Lower::File(error) => error.into(),
            Lower::Interchange(error) => error.into(),
            Lower::Tensor(error) => error.into(),
            other => Error::Trained(other),
        }
    }
}
