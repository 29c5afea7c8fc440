use super::Mpi;
use crate::panics::message;
use crate::{Collective, Error, Replica};
use core::fmt::Display;
use program::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Mpi {
    /// Runs `body` as this process's replica, waits for the other processes, and ends MPI. The counterpart of
    /// [`run_replicas`](crate::run_replicas) for processes.
    ///
    /// If the body fails or panics, the others are told the reason. They stop at their next operation, or
    /// mpirun ends them when this process ends.
    ///
    /// # Errors
    /// The body's error, or why another rank failed or didn't come.
    pub fn run<T, E, F>(self, device: Device, body: F) -> Result<T, E>
    where
        E: From<Error> + Display,
        F: FnOnce(Replica) -> Result<T, E>,
    {
        let member = Mpi::at(Arc::clone(&self.worker), self.place);
        let replica = Replica { device, collective: Box::new(member) };
        match catch_unwind(AssertUnwindSafe(|| body(replica))) {
            Ok(Ok(done)) => {
                self.finish()?;
                Ok(done)
            }
            Ok(Err(error)) => {
                self.abort(&format!("rank {} failed: {error}", self.rank()));
                Err(error)
            }
            Err(panic) => {
                let message = message(panic.as_ref());
                self.abort(&format!("rank {} panicked: {message}", self.rank()));
                Err(Error::Panicked { rank: self.rank(), message }.into())
            }
        }
    }
}
