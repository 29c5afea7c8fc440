/// The result of a collective operation.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong between replicas.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another replica failed, so this one was stopped too.
    #[error("stopped because {reason}")]
    Aborted {
        /// The failed replica, and its failure.
        reason: String,
    },
    /// Replicas called the same collective with different sizes.
    #[error("replica {rank} passed {got} numbers to a collective to which replica {other} passed {expected}")]
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
    /// A replica came to a sum along a tree with another number of nodes than it has in that tree.
    #[error("replica {rank} brought {got} partial sums to a sum that needs {expected} of it")]
    PartialSums {
        /// The replica.
        rank: usize,
        /// What it brought.
        got: usize,
        /// Its number in the tree.
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
        /// The system's error.
        source: std::io::Error,
    },
    /// Other processes did not come to an operation in time, or stopped sending.
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
    /// Another process of the job was lost, and the others may continue without it.
    #[error("another process was lost")]
    Lost,
    /// Processes called different operations: they run different programs.
    #[error("rank {other} came to {got} when rank {rank} came to {expected}")]
    OutOfStep {
        /// The rank that noticed.
        rank: usize,
        /// This rank's operation.
        expected: &'static str,
        /// The other rank.
        other: usize,
        /// The other rank's operation.
        got: &'static str,
    },
    /// The connection to the other processes failed.
    #[error("{name} can't be used: {what}")]
    Transport {
        /// The name of its library.
        name: &'static str,
        /// How.
        what: String,
    },
    /// Weights that can't divide a batch.
    #[error("the weights are `{0}`, but must be positive finite numbers as in 2,1,1")]
    Weights(String),
    /// Devices that can't be divided among pipelines.
    #[error("{devices} devices can't be divided into pipelines of {stages} stages")]
    Uneven {
        /// The devices.
        devices: usize,
        /// The stages.
        stages: usize,
    },
    /// A stage that does not exist.
    #[error("there is no stage {place} one of {stages}")]
    NoStage {
        /// The place where it would be.
        place: &'static str,
        /// The number of stages.
        stages: usize,
    },
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] towers_program::Error),
    /// An error of what a collective stands on.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

#[cfg(feature = "cuda")]
impl From<towers_rendezvous::Error> for Error {
    fn from(error: towers_rendezvous::Error) -> Self {
        Error::Other(error.into())
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
