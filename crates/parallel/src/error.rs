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
    /// A variable of the environment that says where this process belongs makes no sense.
    #[error("{variable} is {value}, but must be {accepted}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value in quotes, or that it is not set.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Two variables that say where this process belongs disagree.
    #[error("{one} is {value}, but {other} is {against}: unset the one that is left from another launcher")]
    Contradiction {
        /// The variable that comes first.
        one: &'static str,
        /// Its value.
        value: usize,
        /// The other.
        other: &'static str,
        /// Its value.
        against: usize,
    },
    /// The processes of a run did not find each other, or are not of one run.
    #[error("{0}")]
    Rendezvous(String),
    /// Nothing in this build or on this machine can join the processes of a run.
    #[error("{0}")]
    NoTransport(String),
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
    /// Weights that nothing can be shared out by.
    #[error("the weights are `{0}`, but must be positive finite numbers as in 2,1,1")]
    Weights(String),
    /// Devices that can't be shared out among pipelines.
    #[error("{devices} devices can't be shared out among pipelines of {stages} stages")]
    Uneven {
        /// The devices.
        devices: usize,
        /// The stages.
        stages: usize,
    },
    /// A stage that there is none of.
    #[error("there is no stage {place} one of {stages}")]
    NoStage {
        /// Where it would be.
        place: &'static str,
        /// How many there are.
        stages: usize,
    },
    /// A device failed.
    #[error(transparent)]
    Tensor(#[from] program::Error),
}

impl Error {
    pub(crate) fn variable(variable: &'static str, value: &str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: crate::cluster::quoted(value), accepted: accepted.into() }
    }

    pub(crate) fn missing(variable: &'static str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: "not set".to_owned(), accepted: accepted.into() }
    }

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
