//! In place of the crate `mpi`, in a build without the feature `mpi`: it joins no processes.

use crate::{Error, Result};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;
use towers_parallel::Replica;
use towers_program::Device;
use towers_rendezvous::Agreement;

/// There is none.
pub(crate) struct Mpi(Infallible);

#[derive(Default)]
#[allow(dead_code, reason = "nothing reads them")]
pub(crate) struct MpiOptions {
    pub(crate) timeout: Duration,
    pub(crate) world: Option<usize>,
    pub(crate) library: Option<PathBuf>,
}

impl Mpi {
    pub(crate) fn start(_: MpiOptions) -> Result<Mpi> {
        let why = "this program was built without MPI; build it with the feature `mpi` of towers-train";
        Err(Error::NoTransport(why.into()))
    }

    pub(crate) fn rank(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn replicas(&self, _: usize) -> Result<Vec<usize>> {
        match self.0 {}
    }

    pub(crate) fn agree(&self, _: &Agreement) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn run<T>(&self, _: &[Device], _: impl Fn(Replica) -> Result<T>) -> Result<Vec<T>> {
        match self.0 {}
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn run_by_nccl<T>(
        &self,
        _: &[Device],
        _: Duration,
        _: impl Fn(Replica) -> Result<T>,
    ) -> Result<Vec<T>> {
        match self.0 {}
    }

    pub(crate) fn is_fault_tolerant(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn regroup(&mut self) -> Result<Vec<usize>> {
        match self.0 {}
    }

    pub(crate) fn gather(&mut self, _: &[f64]) -> Result<Vec<f64>> {
        match self.0 {}
    }

    pub(crate) fn broadcast_numbers(&mut self, _: &[f32], _: usize) -> Result<Vec<f32>> {
        match self.0 {}
    }

    pub(crate) fn broadcast_bytes(&mut self, _: &[u8], _: usize) -> Result<Vec<u8>> {
        match self.0 {}
    }

    pub(crate) fn finish(&self) -> Result<()> {
        match self.0 {}
    }
}

/// There is no job.
pub fn end_failed_job() {}
