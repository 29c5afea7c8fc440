use super::communicator::{Communicator, Lost, Tag};
use super::control::{Arrival, Note, Operation, tag};
use super::queue::CommandQueue;
use super::wait::Wait;
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// How long a rank, after its time-out, asks which others are waiting. They answer within a fraction of a
/// millisecond.
const ASKING: Duration = Duration::from_secs(1);

/// How long notes about a failure get to arrive before this process may end, and with it the job.
const TELLING: Duration = Duration::from_millis(300);

/// The same if the end of this process does not end the job: the others would take it for lost, and continue.
const TELLING_ALL: Duration = Duration::from_secs(10);

/// This rank's member of the job, on the thread that makes all MPI calls.
///
/// A failure never returns: [`fail`](Worker::fail) answers for the rest of the process. So buffers that MPI
/// may still use stay in place, borrowed by the failed operation. A process that was lost is no failure if
/// MPI can continue without it: then the operation returns [`Lost`].
pub(super) struct Worker {
    pub(super) communicator: Communicator,
    pub(super) rank: usize,
    pub(super) world: usize,
    /// This process's rank at the start of the job.
    pub(super) first_rank: usize,
    /// The number of replicas of each process.
    pub(super) replicas: Vec<usize>,
    pub(super) timeout: Duration,
    pub(super) queue: CommandQueue,
    /// The numbers that were sent so far.
    pub(super) sent: Arc<AtomicU64>,
    /// Numbers from others, reused by all operations.
    pub(super) received: Vec<f32>,
}

impl Worker {
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.world).filter(move |other| *other != rank)
    }

    /// Announces an operation and waits for all others to announce the same. Returns the arrivals by rank.
    pub(super) fn arrive(
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
        self.take_from_each(operation, tag::ARRIVAL, |other, message| {
            arrivals[other] = Arrival::from_bytes(message);
            true
        })?;
        let theirs = arrivals.iter().enumerate();
        let mismatch = theirs.filter_map(|(other, theirs)| own.mismatch(self.rank, other, *theirs)).next();
        match mismatch {
            Some(error) => self.fail(error),
            None => Ok(arrivals),
        }
    }

    /// Receives short messages from all others as they come. `take` returns whether it was the rank's last.
    pub(super) fn take_from_each(
        &self,
        operation: Operation,
        tag: Tag,
        mut take: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<(), Lost> {
        let mut missing: Vec<usize> = self.others().collect();
        let mut wait = Wait::new(self.timeout);
        while !missing.is_empty() {
            let mut news = false;
            for other in core::mem::take(&mut missing) {
                let message = self.communicator.receive(Some(other), tag)?;
                news |= message.is_some();
                if !message.is_some_and(|(_, message)| take(other, &message)) {
                    missing.push(other);
                }
            }
            self.pause(operation, &mut wait, news, &|| missing.clone())?;
        }
        Ok(())
    }

    /// Between two polls: answers notes, and fails after the time-out of the `missing` ranks.
    pub(super) fn pause(
        &self,
        operation: Operation,
        wait: &mut Wait,
        news: bool,
        missing: &dyn Fn() -> Vec<usize>,
    ) -> Result<(), Lost> {
        self.queue.beat();
        if let Some(reason) = self.queue.called_off.get() {
            self.tell(reason);
            self.serve(Error::Aborted { reason: reason.clone() });
        }
        if news {
            wait.again();
            return Ok(());
        }
        self.hear(&mut Vec::new())?;
        if !wait.moment() {
            self.accuse(operation, &missing())?;
        }
        Ok(())
    }

    /// Answers notes. Ranks that say that they are waiting are added to `waiting`.
    fn hear(&self, waiting: &mut Vec<usize>) -> Result<(), Lost> {
        while let Some((from, bytes)) = self.communicator.receive(None, tag::NOTE)? {
            match Note::from_bytes(&bytes) {
                Note::Abort(reason) => {
                    // It may have ended since.
                    let _ = self.note(from, &Note::Heard);
                    self.serve(Error::Aborted { reason })
                }
                Note::Ask => self.note(from, &Note::Waiting)?,
                Note::Waiting => waiting.push(from),
                Note::Heard => {}
            }
        }
        Ok(())
    }

    fn note(&self, to: usize, note: &Note) -> Result<(), Lost> {
        self.communicator.send(to, tag::NOTE, &note.to_bytes())
    }

    /// Finds out which of the missing ranks are not waiting themselves, and fails with their names.
    fn accuse(&self, operation: Operation, missing: &[usize]) -> Result<(), Lost> {
        self.others().try_for_each(|other| self.note(other, &Note::Ask))?;
        let began = Instant::now();
        let mut waiting = Vec::new();
        let silent = |waiting: &[usize]| missing.iter().copied().filter(|m| !waiting.contains(m)).collect();
        let mut late: Vec<usize> = silent(&waiting);
        while began.elapsed() < ASKING && !late.is_empty() {
            self.hear(&mut waiting)?;
            late = silent(&waiting);
            std::thread::sleep(Duration::from_millis(1));
        }
        // If all of them wait, a message was lost on its way.
        let missing = if late.is_empty() { missing.to_vec() } else { late };
        self.fail(Error::Late { rank: self.rank, operation: operation.name(), waited: self.timeout, missing })
    }

    /// Tells all others that the run is over, and answers this process until it ends.
    pub(super) fn fail(&self, error: Error) -> ! {
        self.tell(&error.to_string());
        self.serve(error)
    }

    /// Sends all others the reason, and waits until they have heard it, or for a moment.
    pub(super) fn tell(&self, reason: &str) {
        let note = Note::Abort(reason.to_owned());
        // One that is lost needs none.
        self.others().for_each(|other| _ = self.note(other, &note));
        let mut unaware: Vec<usize> = self.others().collect();
        let (began, is_fault_tolerant) = (Instant::now(), self.communicator.is_fault_tolerant());
        while !unaware.is_empty() && began.elapsed() < if is_fault_tolerant { TELLING_ALL } else { TELLING } {
            match self.communicator.receive(None, tag::NOTE) {
                Ok(Some((from, bytes))) => match Note::from_bytes(&bytes) {
                    Note::Abort(_) | Note::Heard => unaware.retain(|other| *other != from),
                    Note::Ask | Note::Waiting => {}
                },
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(Lost) => break,
            }
        }
    }

    /// Comes together with the processes that are left. Returns their ranks at the start of the job, in the order
    /// of their ranks now.
    pub(super) fn regroup(&mut self) -> Vec<usize> {
        loop {
            if let Err(Lost) = self.communicator.shrink() {
                let what = "the processes that are left can't come together".to_owned();
                self.fail(Error::Transport { what });
            }
            (self.rank, self.world) = (self.communicator.rank(), self.communicator.world());
            match self.arrive(Operation::Regroup, 0, self.first_rank) {
                Ok(arrivals) => return arrivals.iter().map(|arrival| arrival.parts).collect(),
                // One more was lost.
                Err(Lost) => self.communicator.revoke(),
            }
        }
    }

    /// Answers this call with the error and all later ones with its text. Then ends the job, if this process
    /// still runs.
    pub(super) fn serve(&self, error: Error) -> ! {
        self.queue.refuse(error, self.communicator.is_fault_tolerant());
        self.communicator.abort()
    }
}
