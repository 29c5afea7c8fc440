use super::communicator::{Communicator, Lost};
use super::control::Operation;
use super::options::MpiOptions;
use super::queue::{Answer, Command, CommandQueue};
use super::worker::Worker;
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tensor_cpu::Buffer as HostBuffer;

/// The wait beyond the time-out. The worker answers in time by itself, but a call into MPI may hang.
const SLACK: Duration = Duration::from_secs(10);

/// The least wait for the start of all processes, which load programs and libraries from slow disks.
const START: Duration = Duration::from_secs(60);

/// The main thread's handle of the worker thread.
pub(super) struct WorkerHandle {
    ends: Mutex<Ends>,
    timeout: Duration,
    /// Grows while the worker waits for others, but not while it is inside a call into MPI.
    beats: Arc<AtomicU64>,
    called_off: Arc<OnceLock<String>>,
    lost: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

struct Ends {
    commands: Sender<Command>,
    answers: Receiver<Answer>,
    /// Commands whose answer was not received yet.
    unanswered: usize,
}

impl WorkerHandle {
    /// Starts MPI on a new thread, and finds this rank.
    pub(super) fn open(options: MpiOptions) -> Result<(WorkerHandle, RankInfo)> {
        let (commands, received) = channel();
        let (answers, answered) = channel();
        let (started, placed) = channel();
        let (timeout, beats) = (options.timeout, Arc::<AtomicU64>::default());
        let (called_off, lost) = (Arc::<OnceLock<String>>::default(), Arc::<AtomicBool>::default());
        let sent = Arc::<AtomicU64>::default();
        let queue = CommandQueue {
            commands: received,
            answers,
            beats: Arc::clone(&beats),
            called_off: Arc::clone(&called_off),
            lost: Arc::clone(&lost),
        };
        let counter = Arc::clone(&sent);
        let run = move || match Worker::start(options, queue, counter, &started) {
            Ok(worker) => worker.run(),
            // After the time-out the receiver is gone.
            Err(error) => _ = started.send(Err(error)),
        };
        let thread = std::thread::Builder::new().name("mpi".to_owned()).spawn(run);
        thread.map_err(|source| Error::Transport {
            what: format!("its thread could not be started: {source}"),
        })?;
        let start = timeout.max(START);
        let place = placed.recv_timeout(start).map_err(|_| Error::Transport {
            what: format!("not all processes of the job started it within {} seconds", start.as_secs_f64()),
        })??;
        let ends = Mutex::new(Ends { commands, answers: answered, unanswered: 0 });
        Ok((WorkerHandle { ends, timeout, beats, called_off, lost, sent }, place))
    }

    /// The time-out of an operation.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues a command. [`next`](WorkerHandle::next) has the answer.
    pub(super) fn begin(&self, command: Command) -> Result<()> {
        let mut ends = self.lock();
        ends.commands.send(command).map_err(|_| lost("it was ended before"))?;
        ends.unanswered += 1;
        Ok(())
    }

    /// The answer to the first command that has none yet.
    pub(super) fn next(&self) -> Answer {
        self.lock().next(self.timeout, &self.beats)
    }

    /// Queues a command and waits for its answer.
    pub(super) fn ask(&self, command: Command) -> Answer {
        self.begin(command)?;
        let mut ends = self.lock();
        // Earlier commands belong to a pass that failed.
        while ends.unanswered > 1 {
            let _ = ends.next(self.timeout, &self.beats);
        }
        ends.next(self.timeout, &self.beats)
    }

    /// Whether a process was lost, and the others may come together again.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// The numbers that this rank has sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the operation that this process waits in, for the reason of another of its threads.
    pub(super) fn call_off(&self, reason: &str) {
        if !self.has_lost() {
            // The first reason stays.
            let _ = self.called_off.set(reason.to_owned());
        }
    }

    /// Tells all others why this rank stops. After a loss they know.
    pub(super) fn abort(&self, reason: &str) {
        if !self.has_lost() {
            // The answer is that error again, and the caller has it already.
            let _ = self.ask(Command::Abort(reason.to_owned()));
        }
    }
}

fn lost(what: &str) -> Error {
    Error::Transport { what: what.to_owned() }
}

impl Ends {
    fn next(&mut self, timeout: Duration, beats: &AtomicU64) -> Answer {
        self.unanswered = self.unanswered.saturating_sub(1);
        // The worker keeps the time-out. This loop only notices a worker that is stuck in MPI.
        let mut beat = beats.load(Ordering::Relaxed);
        loop {
            match self.answers.recv_timeout(timeout + SLACK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(lost("its thread has ended")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            match beats.load(Ordering::Relaxed) {
                now if now == beat => return Err(lost("a call into it did not return")),
                now => beat = now,
            }
        }
    }
}

/// The place of this rank.
#[derive(Clone, Copy)]
pub(super) struct RankInfo {
    pub(super) rank: usize,
    pub(super) world: usize,
    /// Whether all-reduces overlap with computation.
    pub(super) overlaps: bool,
    /// Whether the other processes may continue after one was lost.
    pub(super) is_fault_tolerant: bool,
}

impl Worker {
    /// Starts MPI on this thread, and finds this rank.
    fn start(
        options: MpiOptions,
        queue: CommandQueue,
        sent: Arc<AtomicU64>,
        started: &Sender<Result<RankInfo>>,
    ) -> Result<Worker> {
        let communicator = Communicator::start(options.library.as_deref())?;
        let (rank, world) = (communicator.rank(), communicator.world());
        if let Some(expected) = options.world.filter(|expected| *expected != world) {
            return Err(Error::Transport {
                what: format!(
                    "the launcher speaks of {expected} processes, MPI of {world}; \
                     start the program with the mpirun of the library {}",
                    communicator.name()
                ),
            });
        }
        // At most two short messages to a rank are on their way at a time, and one rank's agreement.
        communicator.attach_buffer((1 << 20) + world * (8 << 10));
        let over_machines = || communicator.world_of_machine() < world;
        let overlaps = world > 1 && options.overlap.unwrap_or_else(over_machines);
        let is_fault_tolerant = communicator.is_fault_tolerant();
        let _ = started.send(Ok(RankInfo { rank, world, overlaps, is_fault_tolerant }));
        let (received, timeout) = (Vec::new(), options.timeout);
        let (replicas, first_rank) = (vec![1; world], rank);
        Ok(Worker { communicator, rank, world, first_rank, replicas, timeout, queue, sent, received })
    }

    /// Executes commands until the last.
    fn run(mut self) {
        while let Ok(command) = self.queue.commands.recv() {
            let ends = matches!(command, Command::Finish);
            let may_come = !self.queue.lost.load(Ordering::Relaxed)
                || matches!(command, Command::Regroup | Command::Abort(_));
            let done = if may_come { self.execute(command) } else { Err(Lost) };
            if ends && done.is_ok() {
                // All ranks have come, so this returns. It ends MPI.
                self.communicator.finish();
                return self.queue.answer(Ok(HostBuffer::default()));
            }
            if done.is_err() && may_come {
                self.queue.lost.store(true, Ordering::Relaxed);
                self.communicator.revoke();
            }
            self.queue.answer(done.map_err(|Lost| Error::Lost));
        }
    }

    fn execute(&mut self, command: Command) -> Result<HostBuffer, Lost> {
        Ok(match command {
            Command::Agree(agreement) => {
                self.agree(&agreement)?;
                HostBuffer::default()
            }
            Command::Replicas(own) => {
                let all = self.arrive(Operation::Begin, 0, own)?;
                self.replicas = all.iter().map(|arrival| arrival.parts).collect();
                numbers(&self.replicas)
            }
            Command::Reduce { mut buffer, first, nodes, len, tree } => {
                self.reduce(&mut buffer[first..][..nodes.max(1) * len], nodes, len, &tree)?;
                buffer
            }
            Command::Broadcast { mut buffer, at, root } => {
                self.broadcast(&mut buffer[at.range()], root)?;
                buffer
            }
            Command::Gather { mut buffer, at } => {
                self.all_gather(&mut buffer[at.range()])?;
                buffer
            }
            Command::Barrier => self.meet(Operation::Barrier)?,
            Command::Finish => self.meet(Operation::Finish)?,
            Command::Regroup => {
                let ranks = self.regroup();
                self.queue.lost.store(false, Ordering::Relaxed);
                self.replicas = vec![1; self.world];
                numbers(&ranks)
            }
            Command::Abort(reason) => {
                self.tell(&reason);
                self.serve(Error::Aborted { reason })
            }
        })
    }

    fn meet(&mut self, operation: Operation) -> Result<HostBuffer, Lost> {
        self.arrive(operation, 0, 0).map(|_| HostBuffer::default())
    }
}

/// Small whole numbers for an answer.
fn numbers(numbers: &[usize]) -> HostBuffer {
    let mut answer = HostBuffer::default();
    answer.grow(numbers.len());
    answer.iter_mut().zip(numbers).for_each(|(answer, number)| *answer = *number as f32);
    answer
}
