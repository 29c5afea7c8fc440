//! All processes of a launch, from start to end.

use super::environment::Launch;
use super::worker::{Request, Worker};
use crate::error::INTERRUPTED;
use crate::print::note;
use anyhow::Context;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time between two checks of the processes.
const PAUSE: Duration = Duration::from_millis(20);

pub struct ProcessGroup {
    workers: Vec<Worker>,
    /// Whether the only one is MPI's launcher.
    by_mpi: bool,
}

/// How a launch ended.
pub enum Outcome {
    Done,
    Interrupted,
    Failed(Failure),
}

/// The first process that failed.
pub struct Failure {
    rank: usize,
    end: String,
    /// The exit status, as shells count it.
    pub status: u8,
    last_lines: Vec<String>,
}

impl ProcessGroup {
    pub fn start(launch: &Launch<'_>, restart: u32, verbose: bool) -> anyhow::Result<ProcessGroup> {
        let port = launch.port()?;
        let start = |rank| Worker::start(rank, launch.command(rank, port, restart)?, verbose);
        // If one process can't be started, the others are dropped, which ends them.
        let workers = (0..launch.started()).map(start).collect::<anyhow::Result<_>>()?;
        Ok(ProcessGroup { workers, by_mpi: launch.is_by_mpi() })
    }

    /// Waits for all processes. When one fails, the others are asked to end, and killed after `grace`. Ctrl-C
    /// is passed on; after the second one the processes also have `grace`. `interrupts` counts those of the
    /// whole launch, so that one between two starts is not lost.
    pub fn supervise(&mut self, interrupts: &AtomicUsize, grace: Duration) -> anyhow::Result<Outcome> {
        let (mut passed_on, mut failure, mut kill_at) = (0, None, None);
        let mut killed = false;
        while self.running()? {
            let count = interrupts.load(Ordering::Relaxed);
            if count > passed_on {
                passed_on = count;
                let kill = failure.is_some() || passed_on > 2;
                killed |= kill;
                self.request(if kill { Request::Kill } else { Request::Interrupt });
                kill_at = kill_at.or((passed_on > 1).then(|| Instant::now() + grace));
            }
            if failure.is_none() && passed_on == 0 {
                failure = self.failure(|status| !status.success())?;
                if failure.is_some() {
                    self.request(Request::Terminate);
                    kill_at = Some(Instant::now() + grace);
                }
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                killed = true;
                self.request(Request::Kill);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(match failure {
            Some(failure) => Outcome::Failed(failure),
            None if passed_on == 0 => {
                self.failure(|status| !status.success())?.map_or(Outcome::Done, Outcome::Failed)
            }
            // Open MPI's launcher ends with status 1 then, whatever its processes do.
            None if self.by_mpi => Outcome::Interrupted,
            // A process that can't save, or fails for another reason, is reported.
            None => {
                let failure = self.failure(|status| !is_interrupted(status, killed))?;
                failure.map_or(Outcome::Interrupted, Outcome::Failed)
            }
        })
    }

    fn request(&mut self, request: Request) {
        self.workers.iter_mut().for_each(|worker| worker.request(request));
    }

    fn running(&mut self) -> anyhow::Result<bool> {
        let mut running = false;
        for worker in &mut self.workers {
            running |=
                worker.ended().with_context(|| format!("rank {} can't be watched", worker.rank))?.is_none();
        }
        Ok(running)
    }

    /// The first failed process, by rank.
    fn failure(&mut self, failed: impl Fn(&ExitStatus) -> bool) -> anyhow::Result<Option<Failure>> {
        for worker in &mut self.workers {
            if let Some(status) = worker.ended()?.filter(&failed) {
                let (end, status) = describe(status);
                let last_lines = worker.last_lines();
                return Ok(Some(Failure { rank: worker.rank, end, status, last_lines }));
            }
        }
        Ok(None)
    }
}

impl Failure {
    pub fn report(&self, launch: &Launch<'_>) {
        self.last_lines.iter().for_each(|line| note(format_args!("[rank {}] {line}", self.rank)));
        let (Failure { rank, end, .. }, processes) = (self, launch.processes);
        match launch.started() {
            1 if processes > 1 => note(format_args!("error: the launcher of {processes} processes {end}")),
            1 => note(format_args!("error: rank {rank} of {processes} {end}")),
            _ => note(format_args!("error: rank {rank} of {processes} {end}; the others were ended")),
        }
    }
}

/// Whether a process ended because of the interrupt; `killed` says that some were killed after the timeout.
fn is_interrupted(status: &ExitStatus, killed: bool) -> bool {
    let own = [0, i32::from(INTERRUPTED)].into_iter().any(|code| status.code() == Some(code));
    #[cfg(unix)]
    {
        use nix::libc::{SIGINT, SIGKILL};
        use std::os::unix::process::ExitStatusExt;
        own || status.signal() == Some(SIGINT) || (killed && status.signal() == Some(SIGKILL))
    }
    #[cfg(not(unix))]
    {
        // On other systems an interrupt may end a process with any status.
        own || killed || !status.success()
    }
}

/// The end of a process as a message, and as an exit status.
fn describe(status: ExitStatus) -> (String, u8) {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = nix::sys::signal::Signal::try_from(signal).map_or("unknown", |signal| signal.as_str());
        return (format!("was ended by signal {signal} ({name})"), 128 + (signal & 0x7f) as u8);
    }
    let code = status.code().unwrap_or(1);
    (format!("ended with exit status {code}"), u8::try_from(code).unwrap_or(1))
}
