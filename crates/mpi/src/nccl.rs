use crate::Mpi;
use crate::transport::Between;
use core::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use towers_parallel::{Across, Error, Members, Nccl, NcclGroup, NcclJoin, Replica, Result, run_members};
use towers_program::Device;

impl Mpi {
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
        let own = Mpi::at(Arc::clone(&self.worker), self.place);
        let joined = self.join_nccl(own, devices, &replicas, patience);
        // The group outlives the end of the other processes' bodies.
        let (members, _group) = joined.inspect_err(|error| self.tell(error))?;
        self.conclude(run_members(devices, members, body))
    }

    /// Joins the replicas of all processes by NCCL.
    fn join_nccl(
        &self,
        mut own: Mpi,
        devices: &[Device],
        replicas: &[usize],
        patience: Duration,
    ) -> Result<(Members, Arc<NcclGroup>)> {
        let id = match devices {
            [device, ..] if self.rank() == 0 => Nccl::draw_id(device)?,
            _ => Vec::new(),
        };
        let id = own.broadcast_bytes(&id, 0)?;
        let (rank, world) = (replicas[..self.rank()].iter().sum(), replicas.iter().sum());
        let across = Across::new(Between::new(own), self.rank(), replicas);
        Members::by_nccl(devices, NcclJoin { id, rank, world, patience, watch: None }, Some(across))
    }
}
