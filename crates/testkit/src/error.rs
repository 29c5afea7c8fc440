use crate::Worst;
use std::path::PathBuf;

/// The result of a check.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What a check found, or why it couldn't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A gradient is not the derivative of the loss.
    #[error("wrong gradient: {worst}, {wrong} of {checked} elements are wrong")]
    Gradient {
        /// The element that is furthest off.
        worst: Box<Worst>,
        /// How many elements are off.
        wrong: usize,
        /// How many elements were checked.
        checked: usize,
    },
    /// So many elements sit on a kink that the check says little.
    #[error("{kinks} of {checked} elements sit on a kink of the loss; choose other inputs")]
    Kinks {
        /// Elements at which the one-sided derivatives differ.
        kinks: usize,
        /// How many elements were checked.
        checked: usize,
    },
    /// Numbers that should be equal are not.
    #[error(
        "{name}[{index}] is {got:e}, not {expected:e}: off by {difference:e}, where {allowed:e} is allowed"
    )]
    Different {
        /// What was compared.
        name: String,
        /// The element that is furthest off.
        index: usize,
        /// What this library computed.
        got: f64,
        /// What was expected.
        expected: f64,
        /// The distance of the two.
        difference: f64,
        /// The largest distance that would do.
        allowed: f64,
    },
    /// Two sets of numbers can't be compared.
    #[error("{name} has {got} elements, not {expected}")]
    Length {
        /// What was compared.
        name: String,
        /// How many elements this library computed.
        got: usize,
        /// How many were expected.
        expected: usize,
    },
    /// A golden file that can't be read.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The network failed.
    #[error(transparent)]
    Network(#[from] towers_layers::Error),
}

impl From<towers_program::Error> for Error {
    fn from(error: towers_program::Error) -> Self {
        Error::Network(error.into())
    }
}
