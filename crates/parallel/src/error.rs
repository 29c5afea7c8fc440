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
    /// Other processes did not come to an operation in time, or sent nothing more.
    #[error("rank {rank} waited {} seconds in {operation} for {}, which did not come", waited.as_secs_f64(), ranks(missing))]
    Late {
        /// Who waited.
        rank: usize,
        /// Where.
        operation: &'static str,
        /// How long.
        waited: std::time::Duration,
        /// For whom.
        missing: Vec<usize>,
    },
    /// Processes came to different operations: they run different programs.
    #[error("rank {other} came to {got} when rank {rank} came to {expected}")]
    OutOfStep {
        /// The rank that noticed.
        rank: usize,
        /// What it came for.
        expected: &'static str,
        /// The other rank.
        other: usize,
        /// What that came for.
        got: &'static str,
    },
    /// The processes of a job were not started alike.
    #[error(
        "rank {rank} has {what} {got}, but rank 0 has {expected}; start all of them with the same program and options"
    )]
    Disagree {
        /// Who differs.
        rank: usize,
        /// In what.
        what: String,
        /// What it has.
        got: String,
        /// What rank 0 has.
        expected: String,
    },
    /// The way to the other processes failed.
    #[error("MPI can't be used: {what}")]
    Transport {
        /// How.
        what: String,
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

/// Ranks in a sentence.
fn ranks(ranks: &[usize]) -> String {
    let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match names.split_last() {
        Some((last, rest @ [_, ..])) => format!("ranks {} and {last}", rest.join(", ")),
        _ => format!("rank {}", names.concat()),
    }
}
