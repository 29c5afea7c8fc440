/// Values are shown up to this length.
const TOLD: usize = 80;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong between processes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// The processes of a job did not find each other, or belong to different jobs.
    #[error("{0}")]
    Meeting(String),
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
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
}

impl Error {
    pub(crate) fn variable(variable: &'static str, value: &str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: quoted(value), accepted: accepted.into() }
    }

    pub(crate) fn missing(variable: &'static str, accepted: impl Into<String>) -> Self {
        Error::Variable { variable, value: "not set".to_owned(), accepted: accepted.into() }
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
