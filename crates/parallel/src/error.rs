/// The result of a collective operation.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong between replicas.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another replica failed, so this one was stopped too.
    #[error("stopped because {reason}")]
    Aborted {
        /// Who failed, and how.
        reason: String,
    },
    /// Replicas called the same collective with different sizes.
    #[error(
        "replica {rank} brought {got} numbers to a collective in which replica {other} brought {expected}"
    )]
    Mismatch {
        /// The replica that noticed.
        rank: usize,
        /// Its numbers.
        got: usize,
        /// The other replica.
        other: usize,
        /// The other's numbers.
        expected: usize,
    },
    /// A replica panicked.
    #[error("replica {rank} panicked: {message}")]
    Panicked {
        /// The replica.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A thread could not be started.
    #[error("replica {rank} could not be started: {source}")]
    Spawn {
        /// The replica.
        rank: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] tensor::Error),
}

impl Error {
    /// Whether this error only reports that another replica failed.
    pub fn is_aborted(&self) -> bool {
        matches!(self, Error::Aborted { .. })
    }
}
