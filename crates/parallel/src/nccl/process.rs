use super::{Nccl, NcclJoin};
use crate::cluster::Place;
use crate::rendezvous::{Hello, ProcessGroup, Settings, Watchdog, connect};
use crate::replicas::message;
use crate::{Agreement, Error, Replica, Result};
use core::fmt::Display;
use program::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensor_cuda::nccl::Communicator;

/// A process that is silent for so long is lost, however long others may be waited for: its signs of life come from a thread
/// of their own.
const SILENCE: Duration = Duration::from_secs(30);
/// NCCL may notice before the watch does that a process is gone. The watch knows which one, a moment later.
const MOMENT: Duration = Duration::from_secs(2);

/// One of several processes, each with a GPU of its own, that NCCL joins.
pub struct NcclProcess<'a> {
    /// Which of them this is.
    pub place: &'a Place,
    /// How they find each other.
    pub settings: &'a Settings,
    /// What must be the same in all of them.
    pub agreement: &'a Agreement,
    /// How long another process may keep this one waiting, once all have met.
    pub timeout: Duration,
    /// The group of the processes, if they have met before they knew what they would do.
    pub group: Option<ProcessGroup>,
}

/// What outlives the member that a body works with.
pub(super) struct Shared {
    /// Tells the others of this process's step.
    pub(super) at_step: Box<dyn Fn(u64) + Send + Sync>,
    /// Tells the others that this process has come to a collective.
    pub(super) enter: Box<dyn Fn() + Send + Sync>,
    /// The member's, when it is gone.
    pub(super) parted: Mutex<Option<Communicator>>,
    /// A call failed by what this process asked for.
    pub(super) at_fault: AtomicBool,
}

impl NcclProcess<'_> {
    /// Meets the other processes, runs `body` as this one's replica, and waits for theirs: what
    /// [`run_replicas`](crate::run_replicas) is to threads.
    ///
    /// All watch over each other meanwhile. When a body fails or panics, or a process dies, is stopped, or can't be reached, the
    /// collectives of all others fail with one sentence that names its rank.
    ///
    /// # Errors
    /// Why the processes don't come together; the body's error; why another process failed.
    pub fn run<T, E, F>(mut self, device: Device, body: F) -> Result<T, E>
    where
        E: From<Error> + Display,
        F: FnOnce(Replica) -> Result<T, E>,
    {
        let (rank, timeout) = (self.place.rank, self.timeout);
        let (id, watch) = self.connect(&device)?;
        let shared = Arc::new(Shared {
            at_step: Box::new(watch.steps()),
            enter: Box::new(watch.entries()),
            parted: Mutex::default(),
            at_fault: AtomicBool::new(false),
        });
        let ran = catch_unwind(AssertUnwindSafe(|| -> Result<T, E> {
            let failed: Option<Box<dyn Fn() -> _ + Send + Sync>> = Some(Box::new(watch.failures()));
            // The watch names who is waited for: it comes first.
            let patience = timeout + timeout.min(SILENCE);
            let join = NcclJoin { id, rank, world: self.place.world, patience, failed };
            let mut member = Nccl::join(&device, join)?;
            member.process = Some(Arc::clone(&shared));
            body(Replica { device, collective: Box::new(member) })
        }));
        let (how, error) = match ran {
            Ok(Ok(done)) => match shared.part() {
                Ok(()) => {
                    watch.finish();
                    return Ok(done);
                }
                Err(error) => (format!("failed: {error}"), error.into()),
            },
            Ok(Err(error)) => (format!("failed: {error}"), error),
            Err(panic) => {
                let message = message(panic.as_ref());
                (format!("panicked: {message}"), Error::Panicked { rank, message }.into())
            }
        };
        let known = if shared.is_at_fault() { watch.failed() } else { soon(&watch) };
        let reason = known.clone().unwrap_or_else(|| format!("rank {rank} {how}"));
        watch.fail(&reason);
        shared.abort(&reason);
        watch.finish();
        Err(known.map_or(error, |reason| Error::Aborted { reason }.into()))
    }

    /// Brings the processes together: the id of their group, and the watch over them.
    fn connect(&mut self, device: &Device) -> Result<([u8; 128], Watchdog)> {
        let Place { rank, world, .. } = *self.place;
        let id = if rank == 0 { Some(Nccl::draw_id(device)?) } else { None };
        let timeout = format!("{} seconds", self.timeout.as_secs_f64());
        let agreement = self.agreement.clone().with("a time-out of", timeout);
        let blob = id.as_ref().map(|id| &id[..]);
        let group = match self.group.take() {
            Some(mut group) => group.agree(agreement, blob).map(|()| group)?,
            None => connect(self.place, self.settings, &Hello { rank, world, agreement }, blob)?,
        };
        let id = group.blob.as_slice().try_into();
        let id = id.map_err(|_| Error::Rendezvous("what rank 0 handed out is no id of NCCL".into()))?;
        Ok((id, Watchdog::start_together(group, self.timeout.min(SILENCE), self.timeout)?))
    }
}

impl Shared {
    /// Whether what went wrong is this process's doing: the group goes on, or was asked for what can't be.
    fn is_at_fault(&self) -> bool {
        let parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        self.at_fault.load(Ordering::Relaxed) || parted.as_ref().is_some_and(|group| !group.has_ended())
    }

    fn parted(&self) -> Option<Communicator> {
        self.parted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until all processes are done, and parts from them.
    fn part(&self) -> Result<()> {
        (self.enter)();
        Ok(self.parted().map_or(Ok(()), |mut communicator| communicator.barrier())?)
    }

    /// Ends the group without waiting for anybody.
    fn abort(&self, reason: &str) {
        if let Some(communicator) = self.parted() {
            communicator.abort(reason);
        }
    }
}

/// What the watch knows, or is about to know.
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
