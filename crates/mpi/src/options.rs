use std::path::PathBuf;
use std::time::Duration;

/// The options of an MPI job.
#[derive(Clone, Debug, PartialEq)]
pub struct MpiOptions {
    /// How long a rank waits for another that sends nothing.
    pub timeout: Duration,
    /// The number of processes according to the launcher. MPI must agree.
    pub world: Option<usize>,
    /// Whether all-reduces overlap with computation, the same on all ranks. By default they do if the ranks
    /// are on several machines: on one machine, copying takes the cores that compute.
    pub overlap: Option<bool>,
    /// The file of the MPI library. By default it is looked for beside the launcher, then where the system
    /// looks.
    pub library: Option<PathBuf>,
}

impl Default for MpiOptions {
    /// Five minutes: longer than rank 0 takes to write a checkpoint, but short enough not to pay for a job
    /// that hangs.
    fn default() -> Self {
        MpiOptions { timeout: Duration::from_secs(300), world: None, overlap: None, library: None }
    }
}
