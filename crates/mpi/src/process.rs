use crate::Mpi;
use crate::transport::Between;
use core::fmt::Display;
use std::sync::Arc;
use towers_parallel::{Across, Error, Members, Replica, run_members};
use towers_program::Device;

impl Mpi {
    /// Runs `body` for each device of this process as a replica, waits for the other processes, and ends MPI.
    /// The counterpart of [`run_replicas`](towers_parallel::run_replicas) for processes. The ranks of the replicas are
    /// in the order of the processes, and of the devices of each.
    ///
    /// If a body fails or panics, the others are told the reason. They stop at their next operation, or
    /// mpirun ends them when this process ends. After [`Error::Lost`] the processes that are left may
    /// [regroup](Mpi::regroup) and run again.
    ///
    /// # Errors
    /// The error of a body, or why another process failed or didn't come.
    pub fn run<T, E, F>(&self, devices: &[Device], body: F) -> Result<Vec<T>, E>
    where
        T: Send,
        E: From<Error> + Display + Send,
        F: Fn(Replica) -> Result<T, E> + Sync,
    {
        let replicas = self.replicas(devices.len())?;
        let own = Mpi::at(Arc::clone(&self.worker), self.place);
        // One each: sums may overlap with computation.
        let members = match replicas.iter().all(|count| *count == 1) {
            true => Members::alone(own),
            false => Members::of_process(
                devices.len(),
                Across::new(Between::new(own), self.rank(), &replicas),
                self.worker.timeout(),
            ),
        };
        self.conclude(run_members(devices, members, body))
    }

    /// Waits for the others, or tells them that this process has failed.
    pub(crate) fn conclude<T, E: From<Error> + Display>(&self, ran: Result<T, E>) -> Result<T, E> {
        match ran {
            Ok(done) => {
                self.finish()?;
                Ok(done)
            }
            Err(error) => {
                self.tell(&error);
                Err(error)
            }
        }
    }

    pub(crate) fn tell(&self, error: &dyn Display) {
        self.worker.abort(&format!("rank {} failed: {error}", self.rank()));
    }
}
