use super::{Nccl, NcclGroup, NcclJoin};
use crate::local::members::Members;
use crate::local::replicas::run_members;
use crate::{Across, Error, Replica, Result};
use core::fmt::Display;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use towers_program::Device;
use towers_rendezvous::{Agreement, ProcessGroup, Watchdog, longest_silence};

/// NCCL may notice a lost process before the watchdog does. The watchdog names it a moment later.
const MOMENT: Duration = Duration::from_secs(2);

/// One of several processes with GPUs, joined by NCCL.
pub struct NcclProcess {
    /// The connected processes.
    pub group: ProcessGroup,
    /// The settings that must agree on all processes.
    pub agreement: Agreement,
    /// How long another process may keep this one waiting.
    pub timeout: Duration,
}

impl Members {
    /// The replicas of this process on these GPUs in a group that NCCL joins; and the group, which must outlive the
    /// others' last operation. A failing thread calls off `across`.
    ///
    /// # Errors
    /// If a device is no GPU, NCCL is missing, or another process did not come.
    pub fn by_nccl(
        devices: &[Device],
        join: NcclJoin,
        across: Option<Across>,
    ) -> Result<(Members, Arc<NcclGroup>)> {
        // A thread may wait for others that wait for NCCL.
        let patience = 2 * join.patience;
        let (members, group) = Nccl::join(devices, join)?;
        let members = Members::new(members, &group.failures.barrier, patience);
        Ok((Members { across: across.map(Arc::new), ..members }, group))
    }
}

impl NcclProcess {
    /// Runs `body` for each device of this process as a replica, and waits for the other processes. The
    /// counterpart of [`run_replicas`](crate::run_replicas) for processes. The ranks of the replicas are in the
    /// order of the processes, and of the devices of each.
    ///
    /// Watchdogs run meanwhile. If a body fails or panics, or a process dies, stops or can't be reached, the
    /// collectives of all others fail with one sentence that names its rank.
    ///
    /// # Errors
    /// The body's error, or the failure of another process.
    pub fn run<T, E, F>(self, devices: &[Device], body: F) -> Result<Vec<T>, E>
    where
        T: Send,
        E: From<Error> + Display + Send,
        F: Fn(Replica) -> Result<T, E> + Sync,
    {
        let NcclProcess { mut group, agreement, timeout } = self;
        let own = group.rank();
        let id = match devices {
            [device, ..] if own == 0 => Nccl::draw_id(device)?,
            _ => Vec::new(),
        };
        let waits = format!("{} seconds", timeout.as_secs_f64());
        let id = group.agree(agreement.with("a time-out of", waits), &id).map_err(Error::from)?;
        let replicas = group.replicas(devices.len()).map_err(Error::from)?;
        let watch = Watchdog::start(group, timeout).map_err(Error::from)?;

        // The watchdog names the rank that is waited for, so its error comes first.
        let patience = timeout + longest_silence(timeout);
        let (rank, world) = (replicas[..own].iter().sum(), replicas.iter().sum());
        let join = NcclJoin { id, rank, world, patience, watch: Some(watch.clone()) };
        let (ran, of_nccl) = match Members::by_nccl(devices, join, None) {
            Ok((members, of_nccl)) => {
                let ran = run_members(devices, members, body).and_then(|done| {
                    watch.enter();
                    of_nccl.part()?;
                    Ok(done)
                });
                (ran, Some(of_nccl))
            }
            Err(error) => (Err(error.into()), None),
        };
        let error = match ran {
            Ok(done) => {
                watch.finish();
                return Ok(done);
            }
            Err(error) => error,
        };
        let at_fault = of_nccl.as_ref().is_some_and(|of_nccl| of_nccl.is_at_fault());
        let known = if at_fault { watch.failed() } else { soon(&watch) };
        let reason = known.clone().unwrap_or_else(|| format!("rank {own} failed: {error}"));
        watch.fail(&reason);
        of_nccl.inspect(|of_nccl| of_nccl.abort(&reason));
        watch.finish();
        Err(known.map_or(error, |reason| Error::Aborted { reason }.into()))
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
