//! All processes of a launch, from start to end.

use crate::Result;
use crate::channel::Channel;
use crate::heard::{Heard, Order};
use crate::job::Job;
use crate::launch::Launch;
use crate::signals::Signal;
use crate::status::INTERRUPTED;
use crate::worker::{Request, Worker};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The time between two checks of the processes.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest time between the ends of processes by a signal to all, and its arrival here.
const MOMENT: Duration = Duration::from_millis(300);
/// How long MPI's launcher has to end after all processes have ended, or after it was asked to.
const MPI_END: Duration = Duration::from_secs(5);

pub struct Processes {
    workers: Vec<Worker>,
    /// The number of processes. With MPI's launcher that is the only worker.
    processes: usize,
    /// To the processes, if MPI's launcher starts them.
    channel: Option<Channel>,
    /// When MPI's launcher was asked to end.
    asked: Option<Instant>,
}

/// How a launch ended.
pub enum Outcome {
    Done,
    /// Whether the processes were killed, before they could save.
    Interrupted {
        killed: bool,
    },
    Failed(Failure),
}

/// The first process that failed.
pub struct Failure {
    /// Its rank, if it is not MPI's launcher.
    rank: Option<usize>,
    end: String,
    /// The exit status, as shells count it.
    pub status: u8,
    last_lines: Vec<String>,
}

/// The events of a launch so far.
#[derive(Default)]
struct Course {
    failure: Option<Failure>,
    /// When the processes that still run are killed.
    kill_at: Option<Instant>,
    /// Whether some were.
    killed: bool,
    /// Whether an end by a signal was given a moment.
    waited: bool,
}

impl Course {
    /// Lets the processes run for so long at most.
    fn kill_in(&mut self, time: Duration) {
        let at = Instant::now() + time;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Processes {
    pub fn start(job: &Job<'_>, restart: u32) -> Result<Processes> {
        let (port, channel, launch) = (job.port()?, job.channel()?, job.launch);
        let verbose = launch.verbose.then_some(&launch.tell);
        let start = |rank| Worker::start(rank, job.command(rank, port, restart, channel.as_ref()), verbose);
        // If one process can't be started, the others are dropped, which ends them.
        let workers = (0..job.started()).map(start).collect::<Result<_>>()?;
        Ok(Processes { workers, processes: launch.processes, channel, asked: None })
    }

    /// Waits for all processes. When one fails, the others are asked to end, and killed after `grace`. Signals
    /// are passed on; a second Ctrl-C kills.
    pub fn supervise(&mut self, heard: &mut Heard, grace: Duration) -> Result<Outcome> {
        let mut course = Course::default();
        while self.running()? {
            while let Some(order) = heard.next() {
                match order {
                    Order::PassOn(signal) if course.failure.is_none() || signal.is_of_user() => {
                        self.pass_on(signal);
                    }
                    Order::PassOn(_) | Order::Kill => course.kill_in(Duration::ZERO),
                }
            }
            if course.failure.is_none() {
                self.look_for_failure(heard, grace, &mut course)?;
            }
            let done = self.look_at_mpi(heard, grace, &mut course)?;
            if course.kill_at.is_some_and(|at| Instant::now() >= at) {
                course.killed |= !done;
                self.kill();
            }
            std::thread::sleep(PAUSE);
        }
        while heard.next().is_some() {}
        self.outcome(heard, course)
    }

    /// Notices the first failure.
    fn look_for_failure(&mut self, heard: &Heard, grace: Duration, course: &mut Course) -> Result<()> {
        let Some(failure) = self.failure_while_running(heard)? else { return Ok(()) };
        if failure.is_by_signal() && !course.waited {
            // The launcher may get the same signal a moment later.
            course.waited = true;
            std::thread::sleep(MOMENT);
            return Ok(());
        }
        let lost = self.channel.as_ref().and_then(Channel::lost_at_start);
        // If a process was lost at the start, the others wait for it, and have nothing to save.
        course.kill_in(if lost.is_some() && lost == failure.rank { Duration::ZERO } else { grace });
        course.failure = Some(failure);
        if self.channel.is_none() {
            // By MPI the processes tell each other.
            self.request(Request::Signal(Signal::Terminate));
        }
        Ok(())
    }

    /// Sets the time at which MPI's launcher and its processes have had enough. Returns whether all these
    /// processes are done.
    fn look_at_mpi(&mut self, heard: &Heard, grace: Duration, course: &mut Course) -> Result<bool> {
        let launcher_runs = self.workers_run()?;
        let Some(channel) = &self.channel else { return Ok(false) };
        let done = channel.all_done(self.processes);
        if done {
            // MPI's launcher has nothing left to wait for.
            course.kill_in(MPI_END);
        } else if !launcher_runs {
            // MPI's launcher has ended before its processes. They may still save.
            course.kill_in(if course.failure.is_some() { Duration::ZERO } else { grace });
        } else if heard.stops() && channel.is_unused() {
            // It may start processes, which end at once, or hang.
            course.kill_in(grace);
        }
        Ok(done)
    }

    /// How all ended.
    fn outcome(&mut self, heard: &Heard, course: Course) -> Result<Outcome> {
        let failure = match course.failure {
            None => self.failure_at_end(heard, course.killed)?,
            failure => failure,
        };
        Ok(match failure {
            Some(failure) => Outcome::Failed(failure),
            None if heard.stops() || self.is_interrupted() => {
                let silent = |channel: &Channel| channel.statuses().iter().all(Option::is_none);
                Outcome::Interrupted { killed: course.killed || self.channel.as_ref().is_some_and(silent) }
            }
            None => Outcome::Done,
        })
    }

    /// The first failure, while others may still run. Once the launch was asked to stop, processes end anyway.
    fn failure_while_running(&mut self, heard: &Heard) -> Result<Option<Failure>> {
        if let Some(channel) = &self.channel {
            let failed = channel.failed().map(|(rank, status)| Failure::of_rank(rank, status));
            let lost = || channel.lost_at_start().filter(|_| !heard.stops()).map(Failure::lost);
            return Ok(failed.or_else(lost));
        }
        if heard.stops() {
            return Ok(None);
        }
        let may_interrupt = heard.may_interrupt();
        self.failed_worker(|status| !(status.success() || may_interrupt && is_interrupted(status, false)))
    }

    /// The first failure, once all have ended.
    fn failure_at_end(&mut self, heard: &Heard, killed: bool) -> Result<Option<Failure>> {
        let Some(channel) = &self.channel else {
            // A process that can't save, or fails for another reason, is reported.
            let may_interrupt = heard.may_interrupt();
            return self.failed_worker(|status| match may_interrupt {
                true => !is_interrupted(status, killed),
                false => !status.success(),
            });
        };
        if let Some((rank, status)) = channel.failed() {
            return Ok(Some(Failure::of_rank(rank, status)));
        }
        let statuses = channel.statuses();
        let all_said = statuses.len() == self.processes && statuses.iter().all(Option::is_some);
        if heard.stops() || all_said || self.is_interrupted() {
            return Ok(None);
        }
        // One that was lost said nothing, and the others may have continued to the end.
        let nobody_said = !statuses.is_empty() && statuses.iter().all(Option::is_none);
        let failure = self.failed_worker(|status| !status.success())?;
        let silent = || Failure { rank: None, end: "lost all of them".into(), status: 1, last_lines: vec![] };
        Ok(failure.or_else(|| nobody_said.then(silent)))
    }

    /// Whether a process says that it was interrupted.
    fn is_interrupted(&mut self) -> bool {
        match &self.channel {
            Some(channel) => channel.statuses().contains(&Some(INTERRUPTED)),
            None => self.workers.iter_mut().any(|worker| {
                worker.ended().is_ok_and(|end| end.and_then(|end| end.code()) == Some(INTERRUPTED.into()))
            }),
        }
    }

    /// Passes a signal on. MPI's launcher may kill instead, so it hears none.
    fn pass_on(&mut self, signal: Signal) {
        match &self.channel {
            Some(channel) => channel.send(signal),
            None => self.request(Request::Signal(signal)),
        }
    }

    /// Kills all processes. MPI's launcher is asked to end first, so that it clears up.
    fn kill(&mut self) {
        if let Some(channel) = &self.channel {
            channel.kill();
            match self.asked {
                None => {
                    self.asked = Some(Instant::now());
                    // It hears no other: see `follow_launcher`.
                    return self.request(Request::Signal(Signal::HangUp));
                }
                Some(asked) if asked.elapsed() < MPI_END => return,
                Some(_) => {}
            }
        }
        self.request(Request::Kill);
    }

    fn request(&mut self, request: Request) {
        self.workers.iter_mut().for_each(|worker| worker.request(request));
    }

    /// Whether anything runs that this launch has started.
    fn running(&mut self) -> Result<bool> {
        Ok(self.workers_run()? || self.channel.as_ref().is_some_and(Channel::is_connected))
    }

    fn workers_run(&mut self) -> Result<bool> {
        let mut running = false;
        for worker in &mut self.workers {
            running |= worker.ended()?.is_none();
        }
        Ok(running)
    }

    /// The first failed worker, by rank.
    fn failed_worker(&mut self, failed: impl Fn(&ExitStatus) -> bool) -> Result<Option<Failure>> {
        for worker in &mut self.workers {
            if let Some(status) = worker.ended()?.filter(&failed) {
                let (end, status) = describe(status);
                let rank = self.channel.is_none().then_some(worker.rank);
                return Ok(Some(Failure { rank, end, status, last_lines: worker.last_lines() }));
            }
        }
        Ok(None)
    }
}

impl Failure {
    /// A process said that it ends with this status.
    fn of_rank(rank: usize, status: u8) -> Failure {
        let end = format!("ended with exit status {status}");
        Failure { rank: Some(rank), end, status, last_lines: Vec::new() }
    }

    /// Whether a signal that ends a run was the reason.
    fn is_by_signal(&self) -> bool {
        // As shells count them: SIGHUP, SIGINT, SIGTERM, SIGXCPU.
        [129, 130, 143, 152].contains(&self.status)
    }

    /// A process was lost at the start.
    fn lost(rank: usize) -> Failure {
        let end = "was lost before all had begun".to_owned();
        Failure { rank: Some(rank), end, status: 1, last_lines: Vec::new() }
    }

    pub fn report(&self, launch: &Launch) {
        let (Failure { rank, end, last_lines, .. }, processes, tell) = (self, launch.processes, &launch.tell);
        let Some(rank) = rank else {
            return tell(&format!("error: the launcher of {processes} processes {end}"));
        };
        last_lines.iter().for_each(|line| tell(&format!("[rank {rank}] {line}")));
        let others = if processes > 1 { "; the others were ended" } else { "" };
        tell(&format!("error: rank {rank} of {processes} {end}{others}"));
    }
}

/// Whether a process ended because of a signal; `killed` says that some were killed after the timeout.
fn is_interrupted(status: &ExitStatus, killed: bool) -> bool {
    let own = [0, i32::from(INTERRUPTED)].into_iter().any(|code| status.code() == Some(code));
    #[cfg(unix)]
    {
        use nix::libc::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGXCPU};
        use std::os::unix::process::ExitStatusExt;
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGXCPU];
        own || status
            .signal()
            .is_some_and(|signal| signals.contains(&signal) || (killed && signal == SIGKILL))
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
