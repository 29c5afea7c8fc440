/// Values are shown up to this length.
const TOLD: usize = 80;

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
    /// A variable of the environment that describes this process's place makes no sense.
    #[error("{variable} is {value}, but must be {accepted}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value in quotes, or that it is not set.
        value: String,
        /// The accepted values.
        accepted: String,
    },
    /// Two variables that describe this process's place disagree.
    #[error("{one} is {value}, but {other} is {against}: unset the one that is left from another launcher")]
    Contradiction {
        /// The variable of higher priority.
        one: &'static str,
        /// Its value.
        value: usize,
        /// The other.
        other: &'static str,
        /// Its value.
        against: usize,
    },
    /// The processes of a run did not find each other, or belong to different runs.
    #[error("{0}")]
    Rendezvous(String),
    /// Nothing in this build or on this machine can connect the processes of a run.
    #[error("{0}")]
    NoTransport(String),
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
    /// The processes of a job were started with different settings.
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
        /// The value of rank 0.
        expected: String,
    },
    /// The connection to the other processes failed.
    #[error("MPI can't be used: {what}")]
    Transport {
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
    Tensor(#[from] program::Error),
}

impl Error {
    pub(crate) fn variable(variable: &'static str, value: &str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: quoted(value), accepted: accepted.into() }
    }

    pub(crate) fn missing(variable: &'static str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: "not set".to_owned(), accepted: accepted.into() }
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

/// A value for an error message: in quotes, on one line, not too long.
pub(crate) fn quoted(value: &str) -> String {
    let mut told: String = value.chars().take(TOLD).flat_map(char::escape_debug).collect();
    if value.chars().nth(TOLD).is_some() {
        told.push_str("...");
    }
    format!("`{told}`")
}
