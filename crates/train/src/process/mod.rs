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
/// All processes call the same functions in the same order. The first one alone has observers, so it alone writes files and
/// talks to people.
pub struct Process {
    place: Place,
    transport: Transport,
    /// The meeting of the processes, if they have met to speak of where the run begins.
    met: Option<ProcessGroup>,
}

impl Process {
    /// Finds the processes that the launcher named in the environment; `None` where this one was started alone.
    ///
    /// On GPUs they are joined by NCCL, and by MPI where that started them and is built in. `timeout` is the longest that a
    /// process waits for others once they have met.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if the environment makes no sense, if nothing in this build joins processes
    /// on such devices, or it is not said how they find each other.
    pub fn join(devices: &Devices, timeout: Duration) -> Result<Option<Process>> {
        match discover_here()? {
            Some(place) if place.world > 1 => {
                let transport = Transport::choose(&place, devices, timeout)?;
                Ok(Some(Process { place, transport, met: None }))
            }
            _ => Ok(None),
        }
    }

    /// Whether this process writes the files and talks to people.
    pub fn is_first(&self) -> bool {
        self.place.is_first()
    }

    /// How many processes there are, and so replicas.
    pub fn world(&self) -> usize {
        self.place.world
    }

    /// Whether nobody looks after all processes of the job together: in Kubernetes, each of them is started again or counts as
    /// done by its own exit status; torchrun does so for those of each machine. Other launchers end all if one fails, and would
    /// start none again that is done.
    pub fn is_on_its_own(&self) -> bool {
        matches!(self.place.source, Source::Variables | Source::TfConfig | Source::Torchrun)
    }

    /// Whether this start is a restart to any of the processes, each of which says what its launcher told it; torchrun may tell
    /// those of a new machine that it is none. Only the first process learns it; to the others it is what they say themselves,
    /// as it is to all where MPI joins them.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if another process did not come in time.
    pub fn any_restarted(&mut self, restarted: bool) -> Result<bool> {
        let Some(settings) = self.transport.settings() else { return Ok(restarted) };
        let Place { rank, world, .. } = self.place;
        let own = Hello { rank, world, agreement: Agreement::new() };
        let mut meeting = connect(&self.place, settings, &own, (rank == 0).then_some(&[]))?;
        let said = meeting.gather(&[u8::from(restarted)])?;
        self.met = Some(meeting);
        Ok(restarted || said.contains(&vec![u8::from(true)]))
    }

    /// The checkpoint that the first process goes on from, by its name; to be asked after
    /// [`any_restarted`](Process::any_restarted). Where MPI joins the processes it is the one that each finds itself.
    ///
    /// # Errors
    /// [`Error::Parallel`](crate::Error::Parallel) if the first process is gone.
    pub fn common_checkpoint(&mut self, own: Option<String>) -> Result<Option<String>> {
        let first = self.is_first();
        let Some(meeting) = &mut self.met else { return Ok(own) };
        let name = own.unwrap_or_default();
        let told = meeting.broadcast(first.then_some(name.as_bytes()))?;
        let told = String::from_utf8_lossy(&told).into_owned();
        Ok(Some(told).filter(|name| !name.is_empty()))
    }

    /// As [`train`](crate::train()), with this process's replica.
    ///
    /// It has the GPU of its number on its machine, or a share of the CPU's threads.
    ///
    /// # Errors
    /// As [`train`](crate::train()); and if another process failed, did not come in time, or was started with other data or another
    /// configuration.
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
        let body = |replica| run.stage(replica, Stage::whole(), observers, stop);
        self.transport.run(&self.place, self.met, device, &facts::facts(&run), body)
    }

    /// Runs `body` as this process's replica, on its device, together with those of the others. All must have the same `facts`.
    ///
    /// # Errors
    /// Those of `body`; and if another process failed, did not come in time, or has other facts.
    pub fn run<T>(
        self,
        config: &Config,
        facts: &Agreement,
        body: impl FnOnce(Replica) -> Result<T>,
    ) -> Result<T> {
        let device = device::open(config, &self.place)?;
        self.transport.run(&self.place, self.met, device, facts, body)
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
