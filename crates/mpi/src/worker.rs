use crate::communicator::{Communicator, Lost};
use crate::control::{Arrival, Note, Operation, tag};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use towers_parallel::{Error, Result};
use towers_tensor_cpu::Buffer as HostBuffer;

/// How long a rank, after its time-out, asks which others are waiting. They answer within a fraction of a
/// millisecond, or later if the machine is busy.
const ASKING: Duration = Duration::from_secs(3);

/// How long notes about a failure get to arrive before this process may end, and with it the job.
const TELLING: Duration = Duration::from_millis(300);

/// The same if the end of this process does not end the job: the others would take it for lost, and continue.
const TELLING_ALL: Duration = Duration::from_secs(10);

/// How long a waiting rank only yields: about the time in which others finish their part of a step.
const EAGER: Duration = Duration::from_millis(1);

/// How long it sleeps between two polls afterwards. Ranks may share cores, and polling would slow down the
/// rank that computes.
const NAP: Duration = Duration::from_micros(100);

/// After a failure the process has this long to end by itself: to tell its user, and to close its files.
const LINGER: Duration = Duration::from_secs(10);
/// How long the other ranks leave the end of the job to the first: where several end it at once, Open MPI's
/// launcher may never return.
const DEFERENCE: Duration = Duration::from_secs(1);
/// How often the worker thread looks whether this process is about to end.
const GLANCE: Duration = Duration::from_millis(20);

/// Whether the job has failed, but continues when this process ends; and whether nothing is left to do but that.
static FAILED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the whole job if it has failed. To be called at the end of a process, after all messages.
///
/// Where MPI can continue without a lost process, the end of one that has failed does not end the others. One of
/// them may hang.
pub fn end_failed_job() {
    if FAILED.load(Ordering::Relaxed) {
        ENDING.store(true, Ordering::Relaxed);
        loop {
            // The worker thread ends it.
            std::thread::park();
        }
    }
}

/// Work for the worker thread.
type Job = dyn FnOnce(&mut Worker) -> Result<HostBuffer, Lost> + Send;

/// A command for the worker thread. Every command gets one answer.
pub(crate) struct Command {
    pub(crate) job: Box<Job>,
    /// Whether it is executed after the loss of a process too. Others fail, until the processes that are left
    /// have come together.
    pub(crate) after_loss: bool,
}

/// The buffer that came with a command, or an empty one.
pub(crate) type Answer = Result<HostBuffer>;

/// What both threads see.
#[derive(Default)]
pub(crate) struct Shared {
    /// Grows while the worker waits for others, but not while it is inside a call into MPI.
    pub(crate) beats: AtomicU64,
    /// Why this process stops, while the worker waits for others.
    pub(crate) called_off: OnceLock<String>,
    /// Whether a process was lost.
    pub(crate) lost: AtomicBool,
    /// The numbers that this rank has sent so far.
    pub(crate) sent: AtomicU64,
}

/// The worker thread's end of the two channels.
pub(crate) struct CommandQueue {
    pub(crate) commands: Receiver<Command>,
    pub(crate) answers: Sender<Answer>,
    pub(crate) shared: Arc<Shared>,
}

impl CommandQueue {
    /// Says that the worker is not stuck.
    pub(crate) fn beat(&self) {
        self.shared.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answer(&self, answer: Answer) {
        // Without a receiver the process is ending.
        let _ = self.answers.send(answer);
    }

    /// Answers a command with an error, and all later ones with its text, until the process has had time to
    /// end. `goes_on` says that the job does not end with this process.
    pub(crate) fn refuse(&self, error: Error, goes_on: bool) {
        FAILED.store(goes_on, Ordering::Relaxed);
        let reason = match &error {
            Error::Aborted { reason } => reason.clone(),
            other => other.to_string(),
        };
        self.answer(Err(error));
        let began = Instant::now();
        while let Some(left) = LINGER.checked_sub(began.elapsed()) {
            match self.commands.recv_timeout(left.min(GLANCE)) {
                Ok(_) => self.answer(Err(Error::Aborted { reason: reason.clone() })),
                Err(_) if ENDING.load(Ordering::Relaxed) => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(GLANCE),
            }
        }
    }
}

/// This rank's member of the job, on the thread that makes all MPI calls.
///
/// A failure never returns: [`fail`](Worker::fail) answers for the rest of the process. So buffers that MPI
/// may still use stay in place, borrowed by the failed operation. A process that was lost is no failure if
/// MPI can continue without it: then the operation returns [`Lost`].
pub(crate) struct Worker {
    pub(crate) communicator: Communicator,
    pub(crate) rank: usize,
    pub(crate) world: usize,
    /// This process's rank at the start of the job.
    pub(crate) first_rank: usize,
    /// The number of replicas of each process.
    pub(crate) replicas: Vec<usize>,
    pub(crate) timeout: Duration,
    pub(crate) queue: CommandQueue,
    /// Numbers from others, reused by all operations.
    pub(crate) received: Vec<f32>,
    /// Whether MPI has ended.
    pub(crate) is_done: bool,
}

impl Worker {
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.world).filter(move |other| *other != rank)
    }

    /// Announces an operation and waits for all others to announce the same. Returns the arrivals by rank.
    pub(crate) fn arrive(
        &self,
        operation: Operation,
        len: usize,
        parts: usize,
    ) -> Result<Vec<Arrival>, Lost> {
        let own = Arrival::new(operation, len, parts);
        for other in self.others() {
            self.communicator.send(other, tag::ARRIVAL, &own.to_bytes())?;
        }
        let mut arrivals = vec![own; self.world];
        let mut missing: Vec<usize> = self.others().collect();
        let mut since = Instant::now();
        while !missing.is_empty() {
            let before = missing.len();
            for other in core::mem::take(&mut missing) {
                match self.communicator.receive(Some(other), tag::ARRIVAL)? {
                    Some((_, message)) => arrivals[other] = Arrival::from_bytes(&message),
                    None => missing.push(other),
                }
            }
            self.pause(operation, &mut since, missing.len() < before, &|| missing.clone())?;
        }
        let theirs = arrivals.iter().enumerate();
        let mismatch = theirs.filter_map(|(other, theirs)| own.mismatch(self.rank, other, *theirs)).next();
        match mismatch {
            Some(error) => self.fail(error),
            None => Ok(arrivals),
        }
    }

    /// Between two polls: answers notes, and fails if the `missing` ranks have sent nothing for the time-out.
    /// `since` is when a message last arrived.
    pub(crate) fn pause(
        &self,
        operation: Operation,
        since: &mut Instant,
        news: bool,
        missing: &dyn Fn() -> Vec<usize>,
    ) -> Result<(), Lost> {
        self.queue.beat();
        if let Some(reason) = self.queue.shared.called_off.get() {
            self.tell(reason);
            self.serve(Error::Aborted { reason: reason.clone() });
        }
        if news {
            *since = Instant::now();
            return Ok(());
        }
        self.hear(missing, &mut BTreeMap::new())?;
        let waited = since.elapsed();
        if waited < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
        if waited >= self.timeout {
            self.accuse(operation, &missing())?;
        }
        Ok(())
    }

    /// Answers notes; this rank waits for the `missing` ones. Ranks that say that they are waiting too are
    /// added to `waiting`.
    fn hear(&self, missing: &dyn Fn() -> Vec<usize>, waiting: &mut Waiting) -> Result<(), Lost> {
        while let Some((from, bytes)) = self.communicator.receive(None, tag::NOTE)? {
            match Note::from_bytes(&bytes) {
                Note::Abort(reason) => {
                    // It may have ended since.
                    let _ = self.note(from, &Note::Heard);
                    self.serve(Error::Aborted { reason })
                }
                Note::Ask => self.note(from, &Note::waiting(missing()))?,
                Note::Waiting(missing) => _ = waiting.insert(from, missing),
                Note::Heard => {}
            }
        }
        Ok(())
    }

    fn note(&self, to: usize, note: &Note) -> Result<(), Lost> {
        self.communicator.send(to, tag::NOTE, &note.to_bytes())
    }

    /// Finds out for which ranks the missing ones wait, and fails with the names of those that don't wait.
    fn accuse(&self, operation: Operation, missing: &[usize]) -> Result<(), Lost> {
        self.others().try_for_each(|other| self.note(other, &Note::Ask))?;
        let began = Instant::now();
        let mut waiting = Waiting::new();
        let mut late = at_fault(self.rank, missing, &waiting);
        while began.elapsed() < ASKING && !late.is_empty() {
            self.hear(&|| missing.to_vec(), &mut waiting)?;
            late = at_fault(self.rank, missing, &waiting);
            std::thread::sleep(Duration::from_millis(1));
        }
        // If all of them wait, a message was lost on its way.
        let missing = if late.is_empty() { missing.to_vec() } else { late };
        self.fail(Error::Late { rank: self.rank, operation: operation.name(), waited: self.timeout, missing })
    }

    /// Tells all others that the run is over, and answers this process until it ends.
    pub(crate) fn fail(&self, error: Error) -> ! {
        self.tell(&error.to_string());
        self.serve(error)
    }

    /// Sends all others the reason, and waits until they have heard it, or for a moment.
    pub(crate) fn tell(&self, reason: &str) {
        let note = Note::abort(reason);
        // One that is lost needs none.
        self.others().for_each(|other| _ = self.note(other, &note));
        let mut unaware: Vec<usize> = self.others().collect();
        let (began, is_fault_tolerant) = (Instant::now(), self.communicator.is_fault_tolerant());
        while !unaware.is_empty() && began.elapsed() < if is_fault_tolerant { TELLING_ALL } else { TELLING } {
            match self.communicator.receive(None, tag::NOTE) {
                Ok(Some((from, bytes))) => match Note::from_bytes(&bytes) {
                    Note::Abort(_) | Note::Heard => unaware.retain(|other| *other != from),
                    Note::Ask | Note::Waiting(_) => {}
                },
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(Lost) => break,
            }
        }
    }

    /// Comes together with the processes that are left. Returns their ranks at the start of the job, in the order
    /// of their ranks now.
    pub(crate) fn regroup(&mut self) -> Vec<usize> {
        loop {
            if let Err(Lost) = self.communicator.shrink() {
                let what = "the processes that are left can't come together".to_owned();
                self.fail(Error::Transport { name: "MPI", what });
            }
            (self.rank, self.world) = (self.communicator.rank(), self.communicator.world());
            match self.arrive(Operation::Regroup, 0, self.first_rank) {
                Ok(arrivals) => {
                    self.replicas = vec![1; self.world];
                    return arrivals.iter().map(|arrival| arrival.parts).collect();
                }
                // One more was lost.
                Err(Lost) => self.communicator.revoke(),
            }
        }
    }

    /// Waits for all others, and ends MPI.
    pub(crate) fn finish(&mut self) -> Result<(), Lost> {
        self.arrive(Operation::Finish, 0, 0)?;
        // All ranks have come, so this returns.
        self.communicator.finish();
        self.is_done = true;
        Ok(())
    }

    /// Answers this call with the error and all later ones with its text. Then ends the job, if this process
    /// still runs.
    pub(crate) fn serve(&self, error: Error) -> ! {
        self.queue.refuse(error, self.communicator.is_fault_tolerant());
        if self.rank > 0 {
            std::thread::sleep(DEFERENCE);
        }
        self.communicator.abort()
    }
}

/// The ranks that are waiting, each with those that it waits for.
type Waiting = BTreeMap<usize, Vec<usize>>;

/// The ranks that don't wait, of those that rank `own` waits for: by itself, or because one waits for another.
fn at_fault(own: usize, missing: &[usize], waiting: &Waiting) -> Vec<usize> {
    let (mut found, mut next) = (vec![own], missing.to_vec());
    let mut late = Vec::new();
    while let Some(rank) = next.pop() {
        if found.contains(&rank) {
            continue;
        }
        found.push(rank);
        match waiting.get(&rank) {
            Some(missing) => next.extend(missing),
            None => late.push(rank),
        }
    }
    late.sort_unstable();
    late
}

/// Small whole numbers for an answer.
pub(crate) fn as_buffer(numbers: &[usize]) -> HostBuffer {
    let mut answer = HostBuffer::default();
    answer.grow(numbers.len());
    answer.iter_mut().zip(numbers).for_each(|(answer, number)| *answer = *number as f32);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_another_is_not_at_fault() {
        let late = |missing: &[usize], waiting: &[(usize, &[usize])]| {
            let waiting = waiting.iter().map(|(rank, missing)| (*rank, missing.to_vec())).collect();
            at_fault(0, missing, &waiting)
        };
        assert_eq!(late(&[2, 1], &[]), [1, 2]);
        assert_eq!(late(&[1, 2], &[(2, &[1])]), [1]);
        // Rank 1 has sent this rank all that it needs, but not rank 2.
        assert_eq!(late(&[2], &[(2, &[1, 0])]), [1]);
        assert_eq!(late(&[2], &[(2, &[3]), (3, &[1])]), [1]);
        assert_eq!(late(&[2], &[(2, &[0])]), [0; 0]);
    }
}
