use super::{Across, Mpi};
use crate::local::members::Members;
use crate::local::replicas::run_members;
use crate::nccl::{Group, NcclJoin, id_of};
use crate::{Error, Nccl, Replica, Result};
use core::fmt::Display;
use program::Device;
use std::sync::Arc;
use std::time::Duration;

impl Mpi {
    /// Runs `body` for each device of this process as a replica, waits for the other processes, and ends MPI.
    /// The counterpart of [`run_replicas`](crate::run_replicas) for processes. The ranks of the replicas are
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
            false => Members::of_process(devices.len(), Across::new(own, &replicas), self.worker.timeout()),
        };
        self.conclude(run_members(devices, members, body))
    }

    /// As [`run`](Mpi::run), on GPUs that NCCL joins. MPI brings its id, and ends the processes together.
    ///
    /// # Errors
    /// As [`run`](Mpi::run), and if a device is no GPU, or NCCL is missing.
    pub fn run_by_nccl<T, E, F>(&self, devices: &[Device], patience: Duration, body: F) -> Result<Vec<T>, E>
    where
        T: Send,
        E: From<Error> + Display + Send,
        F: Fn(Replica) -> Result<T, E> + Sync,
    {
        let replicas = self.replicas(devices.len())?;
        let mut own = Mpi::at(Arc::clone(&self.worker), self.place);
        let joined = self.join_nccl(&mut own, devices, &replicas, patience);
        let (members, group) = joined.inspect_err(|error| self.tell(error))?;
        let across = Some(Arc::new(Across::new(own, &replicas)));
        // A thread may wait for others that wait for NCCL.
        let members = Members::new(members, &group.failures.barrier, 2 * patience);
        self.conclude(run_members(devices, Members { across, ..members }, body))
    }

    /// Joins the replicas of all processes by NCCL.
    fn join_nccl(
        &self,
        own: &mut Mpi,
        devices: &[Device],
        replicas: &[usize],
        patience: Duration,
    ) -> Result<(Vec<Nccl>, Arc<Group>)> {
        let id = match devices {
            [device, ..] if self.rank() == 0 => Nccl::draw_id(device)?.to_vec(),
            _ => Vec::new(),
        };
        let id = id_of(&own.broadcast_bytes(&id, 0)?)?;
        let (rank, world) = (replicas[..self.rank()].iter().sum(), replicas.iter().sum());
        Nccl::join(devices, NcclJoin { id, rank, world, patience, watch: None })
    }

    /// Waits for the others, or tells them that this process has failed.
    fn conclude<T, E: From<Error> + Display>(&self, ran: Result<T, E>) -> Result<T, E> {
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

    fn tell(&self, error: &dyn Display) {
        self.worker.abort(&format!("rank {} failed: {error}", self.rank()));
    }
}
