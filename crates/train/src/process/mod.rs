mod cores;
mod device;
mod facts;
mod transport;

use crate::run::{Observers, PreparedRun, named};
use crate::{Config, Devices, Outcome, Result, Resume, StopFlag};
use cifar::Dataset;
use parallel::cluster::{Place, Source, discover_here};
use parallel::rendezvous::{Hello, ProcessGroup, connect};
use parallel::{Agreement, Replica, Stage};
use std::time::Duration;
use transport::Transport;

pub use facts::with_device_facts;

/// This process, as one of several that train together: each runs one replica.
///
/// All processes call the same functions in the same order. Only the first one has observers, writes files
/// and prints messages.
pub struct Process {
    place: Place,
    transport: Transport,
    /// The group of the processes, once they have met to agree on a checkpoint.
    group: Option<ProcessGroup>,
}

impl Process {
    /// Finds the processes that the launcher named in the environment; `None` if this one was started alone.
    ///
    /// On GPUs they are joined by NCCL; by MPI if that started them and is built in. `timeout` is the longest
    /// wait for other processes after the rendezvous.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if the environment is contradictory, if nothing in this
    /// build joins processes on such devices, or if the address of the rendezvous is missing.
    pub fn join(devices: &Devices, timeout: Duration) -> Result<Option<Process>> {
        match discover_here()? {
            Some(place) if place.world > 1 => {
                let transport = Transport::choose(&place, devices, timeout)?;
                Ok(Some(Process { place, transport, group: None }))
            }
            _ => Ok(None),
        }
    }

    /// Whether this process writes the files and prints messages.
    pub fn is_first(&self) -> bool {
        self.place.is_first()
    }

    /// The number of processes, which is that of replicas.
    pub fn world(&self) -> usize {
        self.place.world
    }

    /// Whether no launcher watches all processes of the job together. Kubernetes restarts each process, or
    /// counts it as done, by its own exit status; torchrun does so for the processes of each machine. Other
    /// launchers end all processes if one fails, and would not restart one that is done.
    pub fn is_on_its_own(&self) -> bool {
        matches!(self.place.source, Source::Variables | Source::TfConfig | Source::Torchrun)
    }

    /// Whether any process was restarted. Each passes the information of its launcher; torchrun may call the
    /// processes of a new machine not restarted. Only the first process gets the common answer; the others
    /// get their own one, and so do all with MPI.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if another process did not answer in time.
    pub fn any_restarted(&mut self, restarted: bool) -> Result<bool> {
        let Some(settings) = self.transport.settings() else { return Ok(restarted) };
        let Place { rank, world, .. } = self.place;
        let own = Hello { rank, world, agreement: Agreement::new() };
        let mut group = connect(&self.place, settings, &own, (rank == 0).then_some(&[]))?;
        let said = group.gather(&[u8::from(restarted)])?;
        self.group = Some(group);
        Ok(restarted || said.contains(&vec![u8::from(true)]))
    }

    /// The checkpoint that the first process resumes from, by its name. Call
    /// [`any_restarted`](Process::any_restarted) first. With MPI, each process takes the one that it finds
    /// itself.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if the first process has ended.
    pub fn common_checkpoint(&mut self, own: Option<String>) -> Result<Option<String>> {
        let first = self.is_first();
        let Some(group) = &mut self.group else { return Ok(own) };
        let name = own.unwrap_or_default();
        let name = group.broadcast(first.then_some(name.as_bytes()))?;
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    /// As [`train`](crate::train()), with this process's replica.
    ///
    /// The device is the GPU of its local rank, or a share of the CPU's threads.
    ///
    /// # Errors
    /// As [`train`](crate::train()); and if another process failed, did not answer in time, or was started
    /// with other data or another configuration.
    pub fn train(
        self,
        config: &Config,
        data: Dataset,
        resume: Option<&Resume>,
        observers: Observers<'_>,
        stop: &StopFlag,
    ) -> Result<Outcome> {
        config.check()?;
        let device = device::open(config, &self.place)?;
        let run = PreparedRun::prepare(config, named(config, &data)?, data, resume, self.world(), &device)?;
        run.check_memory(&device, 1, self.world())?;
        let observers = if self.is_first() { observers } else { Default::default() };
        let run = run.watched_by(observers);
        let body = |replica| run.start(replica, Stage::whole(), observers, stop)?.fit();
        let facts = facts::facts(&run, &device);
        self.transport.run(&self.place, self.group, device, &facts, body)
    }

    /// Runs `body` as this process's replica, on its device, together with the others. `facts` must agree
    /// across all processes.
    ///
    /// # Errors
    /// Those of `body`; and if another process failed, did not answer in time, or has other facts.
    pub fn run<T>(
        self,
        config: &Config,
        facts: &Agreement,
        body: impl FnOnce(Replica) -> Result<T>,
    ) -> Result<T> {
        let device = device::open(config, &self.place)?;
        self.transport.run(&self.place, self.group, device, facts, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process of rank 5 of 8.
    pub(super) fn place(local_rank: usize, local_world: usize) -> Place {
        Place {
            rank: 5,
            world: 8,
            local_rank,
            local_world,
            master: None,
            job: None,
            restart: 0,
            source: Source::OpenMpi,
        }
    }
}
