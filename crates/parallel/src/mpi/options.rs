use std::time::Duration;

/// How an MPI job is run.
#[derive(Clone, Debug, PartialEq)]
pub struct MpiOptions {
    /// How long a rank waits for another that does not come and sends nothing.
    pub timeout: Duration,
    /// How many processes the launcher says there are; MPI must find as many.
    pub world: Option<usize>,
    /// Whether sums go on while the process computes, the same on all ranks. By default they do if the ranks are on several
    /// machines: on one the cores that copy are those that compute.
    pub overlap: Option<bool>,
}

impl Default for MpiOptions {
    /// Five minutes: longer than the first rank takes to write a checkpoint, shorter than anybody wants to pay for a job that hangs.
    fn default() -> Self {
        MpiOptions { timeout: Duration::from_secs(300), world: None, overlap: None }
    }
}

impl MpiOptions {
    /// Waits so long for the others.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Expects so many processes.
    pub fn world(mut self, world: usize) -> Self {
        self.world = Some(world);
        self
    }

    /// Has sums go on while the process computes, or not.
    pub fn overlap(mut self, overlap: bool) -> Self {
        self.overlap = Some(overlap);
        self
    }
}
