//! Why a command ended without success; the exit status says which.

/// A command line that can't be understood, or a command that failed.
pub enum Failure {
    /// The command line can't be understood: exit status 2.
    Usage(String),
    /// The command was understood and did not succeed: exit status 1.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.into())
    }
}
