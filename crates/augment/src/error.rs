//! What can be wrong with options, images and workers.

use thiserror::Error as ThisError;

/// Everything that can fail in this crate.
#[derive(Clone, Debug, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that makes no sense, alone or for the images at hand.
    #[error("`{option}` is {value}, but it must be {accepted}")]
    Option {
        /// The option, spelled as in the builder.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What would have been accepted.
        accepted: String,
    },
    /// A buffer or an array does not have the shape that the pipeline was built for.
    #[error("{what} has shape {got:?}, but {expected:?} is needed")]
    Shape {
        /// Which buffer or array.
        what: &'static str,
        /// Its shape, or its length as the only number.
        got: Vec<usize>,
        /// The shape, or length, it must have.
        expected: Vec<usize>,
    },
    /// Images must have at least one row, column and channel.
    #[error("images of shape {shape:?} (height, width, channels) hold no pixels")]
    EmptyImage {
        /// Height, width and channels.
        shape: [usize; 3],
    },
    /// A mean or an epoch was asked of a set without images.
    #[error("{op}: the set holds no images")]
    EmptySet {
        /// The operation.
        op: &'static str,
    },
    /// An option needs the measurements of `fit`.
    #[error(
        "`{option}` is on, but what it needs was not measured yet: call `fit` with the training images, or give it"
    )]
    NotFitted {
        /// The option.
        option: &'static str,
    },
    /// The covariance of the images, or of their patches, could not be taken apart for whitening.
    #[error("whitening: the covariance of the images has no eigenvalues that can be computed")]
    NoWhitening,
    /// An option does something that no [`Place`](crate::engine::Place)s can say.
    #[error("`{option}` is on: what it does to an image is more than moving whole rows and columns")]
    NoPlacement {
        /// The option.
        option: &'static str,
    },
    /// A picture or its folder could not be written.
    #[error("can't write {path}: {reason}")]
    Write {
        /// The file or folder.
        path: String,
        /// The system's reason.
        reason: String,
    },
    /// An image could not be read: see [`Samples::on_demand`](crate::Samples::on_demand).
    #[error("{reason}")]
    Read {
        /// What the reading function says.
        reason: String,
    },
    /// A loader was asked for a step that the epoch doesn't have.
    #[error("step {step} lies beyond the end of the epoch, which has {steps} steps")]
    Step {
        /// The step asked for.
        step: usize,
        /// Steps in an epoch.
        steps: usize,
    },
    /// The operating system gave no thread for a loader's worker.
    #[error("could not start a worker thread: {reason}")]
    Spawn {
        /// The system's reason.
        reason: String,
    },
    /// A worker panicked while it made a batch.
    #[error("the worker that made step {step} panicked: {message}")]
    Worker {
        /// The step of the batch, counted from the beginning of the epoch.
        step: usize,
        /// The panic's message.
        message: String,
    },
}

impl Error {
    pub(crate) fn option(
        option: &'static str,
        value: impl std::fmt::Display,
        accepted: impl Into<String>,
    ) -> Self {
        Error::Option { option, value: value.to_string(), accepted: accepted.into() }
    }

    /// The numbers of `text`, separated by commas: the form of an option of several numbers.
    pub(crate) fn numbers(option: &'static str, text: &str, accepted: &str) -> Result<Vec<f64>, Self> {
        let numbers: Result<Vec<f64>, _> = text.split(',').map(|part| part.trim().parse()).collect();
        numbers.map_err(|_| Error::option(option, format!("`{text}`"), accepted))
    }

    /// `Ok` if `got` equals `expected`, for one-dimensional buffers.
    pub(crate) fn check_len(what: &'static str, got: usize, expected: usize) -> Result<(), Self> {
        if got == expected {
            return Ok(());
        }
        Err(Error::Shape { what, got: vec![got], expected: vec![expected] })
    }
}
