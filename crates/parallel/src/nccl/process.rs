use super::shared::Shared;
use super::{Nccl, NcclJoin};
use crate::cluster::Place;
use crate::members::{Members, boxed};
use crate::rendezvous::{Hello, ProcessGroup, Settings, Watchdog, connect, longest_silence};
use crate::replicas::run_members;
use crate::{Agreement, Error, Replica, Result};
use core::fmt::Display;
use program::Device;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// NCCL may notice a lost process before the watchdog does. The watchdog names it a moment later.
const MOMENT: Duration = Duration::from_secs(2);

/// One of several processes with GPUs, joined by NCCL.
pub struct NcclProcess<'a> {
    /// The place of this process.
    pub place: &'a Place,
    /// The settings of the rendezvous.
    pub settings: &'a Settings,
    /// The settings that must agree on all processes.
    pub agreement: &'a Agreement,
    /// How long another process may keep this one waiting, after the rendezvous.
    pub timeout: Duration,
    /// The connected processes, if they have exchanged data before.
    pub group: Option<ProcessGroup>,
}

impl NcclProcess<'_> {
    /// Connects to the other processes, runs `body` for each device of this one as a replica, and waits for
    /// theirs. The counterpart of [`run_replicas`](crate::run_replicas) for processes. The ranks of the replicas
    /// are in the order of the processes, and of the devices of each.
    ///
    /// Watchdogs run meanwhile. If a body fails or panics, or a process dies, stops or can't be reached, the
    /// collectives of all others fail with one sentence that names its rank.
    ///
    /// # Errors
    /// The error of the rendezvous, the body's error, or the failure of another process.
    pub fn run<T, E, F>(mut self, devices: &[Device], body: F) -> Result<Vec<T>, E>
    where
        T: Send,
        E: From<Error> + Display + Send,
        F: Fn(Replica) -> Result<T, E> + Sync,
    {
        let (rank, timeout) = (self.place.rank, self.timeout);
        let (id, replicas, watch) = self.connect(devices)?;
        let shared = Arc::new(Shared {
            at_step: Box::new(watch.steps()),
            enter: Box::new(watch.entries()),
            parted: Mutex::default(),
            at_fault: AtomicBool::new(false),
        });
        let run = || {
            let failed: Option<Box<dyn Fn() -> _ + Send + Sync>> = Some(Box::new(watch.failures()));
            // The watchdog names the rank that is waited for, so its error comes first.
            let patience = timeout + longest_silence(timeout);
            let (first, world) = (replicas[..rank].iter().sum(), replicas.iter().sum());
            let (mut members, barrier) =
                Nccl::join(devices, NcclJoin { id, rank: first, world, patience, failed })?;
            for (own, member) in members.iter_mut().enumerate() {
                (member.process, member.reports) = (Some(Arc::clone(&shared)), own == 0);
            }
            // A thread may wait for others that wait for NCCL.
            let patience = 2 * patience;
            run_members(
                devices,
                Members { collectives: boxed(members), barrier, across: None, patience },
                body,
            )
        };
        let ran = run().and_then(|done| shared.part().map(|()| done).map_err(E::from));
        let error = match ran {
            Ok(done) => {
                watch.finish();
                return Ok(done);
            }
            Err(error) => error,
        };
        let known = if shared.is_at_fault() { watch.failed() } else { soon(&watch) };
        let reason = known.clone().unwrap_or_else(|| format!("rank {rank} failed: {error}"));
        watch.fail(&reason);
        shared.abort(&reason);
        watch.finish();
        Err(known.map_or(error, |reason| Error::Aborted { reason }.into()))
    }

    /// Connects the processes. Returns the id of their group, the number of replicas of each, and the watchdog.
    fn connect(&mut self, devices: &[Device]) -> Result<([u8; 128], Vec<usize>, Watchdog)> {
        let Place { rank, world, .. } = *self.place;
        let id = match devices {
            [device, ..] if rank == 0 => Some(Nccl::draw_id(device)?),
            _ => None,
        };
        let timeout = format!("{} seconds", self.timeout.as_secs_f64());
        let agreement = self.agreement.clone().with("a time-out of", timeout);
        let blob = id.as_ref().map(|id| &id[..]);
        let mut group = match self.group.take() {
            Some(mut group) => group.agree(agreement, blob).map(|()| group)?,
            None => connect(self.place, self.settings, &Hello { rank, world, agreement }, blob)?,
        };
        let id = group.blob.as_slice().try_into();
        let id = id.map_err(|_| Error::Rendezvous("what rank 0 handed out is no id of NCCL".into()))?;
        let replicas = group.replicas(devices.len())?;
        let watch = Watchdog::start(group, self.timeout)?;
        Ok((id, replicas, watch))
    }
}

/// The watchdog's error, now or a moment later.
fn soon(watch: &Watchdog) -> Option<String> {
    let until = Instant::now() + MOMENT;
    loop {
        let failed = watch.failed();
        if failed.is_some() || Instant::now() >= until {
            return failed;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
