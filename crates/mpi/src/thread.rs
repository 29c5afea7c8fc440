use crate::communicator::{Communicator, Lost};
use crate::control::Operation;
use crate::options::MpiOptions;
use crate::worker::{Answer, Command, CommandQueue, Shared, Worker, as_buffer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use towers_parallel::{Error, Result};
use towers_tensor_cpu::Buffer as HostBuffer;

/// The wait beyond the time-out. The worker answers in time by itself, but a call into MPI may hang.
const SLACK: Duration = Duration::from_secs(10);
/// The least wait for the start of all processes, which load programs and libraries from slow disks.
const START: Duration = Duration::from_secs(60);
/// The main thread's handle of the worker thread.
pub(crate) struct WorkerHandle {
    ends: Mutex<Ends>,
    timeout: Duration,
    shared: Arc<Shared>,
}

struct Ends {
    commands: Sender<Command>,
    answers: Receiver<Answer>,
    /// Commands whose answer was not received yet.
    unanswered: usize,
}

impl WorkerHandle {
    /// Starts MPI on a new thread, and finds this rank.
    pub(crate) fn open(options: MpiOptions) -> Result<(WorkerHandle, RankInfo)> {
        let (commands, received) = channel();
        let (answers, answered) = channel();
        let (started, placed) = channel();
        let (timeout, shared) = (options.timeout, Arc::<Shared>::default());
        let queue = CommandQueue { commands: received, answers, shared: Arc::clone(&shared) };
        let run = move || match Worker::start(options, queue, &started) {
            Ok(worker) => worker.run(),
            // After the time-out the receiver is gone.
            Err(error) => _ = started.send(Err(error)),
        };
        let refused = |source| lost(&format!("its thread could not be started: {source}"));
        std::thread::Builder::new().name("mpi".to_owned()).spawn(run).map_err(refused)?;
        let start = timeout.max(START);
        let place = placed.recv_timeout(start).map_err(|_| {
            lost(&format!("not all processes of the job started it within {} seconds", start.as_secs_f64()))
        })??;
        let ends = Mutex::new(Ends { commands, answers: answered, unanswered: 0 });
        Ok((WorkerHandle { ends, timeout, shared }, place))
    }

    /// The time-out of an operation.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job for the worker. [`next`](WorkerHandle::next) has the answer.
    pub(crate) fn begin(
        &self,
        job: impl FnOnce(&mut Worker) -> Result<HostBuffer, Lost> + Send + 'static,
    ) -> Result<()> {
        self.lock().begin(Command { job: Box::new(job), after_loss: false })
    }

    /// The answer to the first job that has none yet.
    pub(crate) fn next(&self) -> Answer {
        self.lock().next(self.timeout, &self.shared.beats)
    }

    /// Queues a job and waits for its answer.
    pub(crate) fn ask(
        &self,
        job: impl FnOnce(&mut Worker) -> Result<HostBuffer, Lost> + Send + 'static,
    ) -> Answer {
        self.ask_for(Command { job: Box::new(job), after_loss: false })
    }

    fn ask_for(&self, command: Command) -> Answer {
        let mut ends = self.lock();
        ends.begin(command)?;
        // Earlier commands belong to a pass that failed.
        while ends.unanswered > 1 {
            let _ = ends.next(self.timeout, &self.shared.beats);
        }
        ends.next(self.timeout, &self.shared.beats)
    }

    /// Waits for all other processes.
    pub(crate) fn barrier(&self) -> Result<()> {
        self.ask(|worker| worker.arrive(Operation::Barrier, 0, 0).map(|_| HostBuffer::default())).map(drop)
    }

    /// After a loss: comes together with the processes that are left. Returns their ranks at the start of the
    /// job.
    pub(crate) fn regroup(&self) -> Result<Vec<usize>> {
        let job = |worker: &mut Worker| {
            let ranks = worker.regroup();
            worker.queue.shared.lost.store(false, Ordering::Relaxed);
            Ok(as_buffer(&ranks))
        };
        let ranks = self.ask_for(Command { job: Box::new(job), after_loss: true })?;
        Ok(ranks.iter().map(|rank| *rank as usize).collect())
    }

    /// The numbers that this rank has sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    fn has_lost(&self) -> bool {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Ends the operation that this process waits in, for the reason of another of its threads.
    pub(crate) fn call_off(&self, reason: &str) {
        if !self.has_lost() {
            // The first reason stays.
            let _ = self.shared.called_off.set(reason.to_owned());
        }
    }

    /// Tells all others why this rank stops. After a loss they know.
    pub(crate) fn abort(&self, reason: &str) {
        if self.has_lost() {
            return;
        }
        let reason = reason.to_owned();
        let job = |worker: &mut Worker| {
            worker.tell(&reason);
            worker.serve(Error::Aborted { reason })
        };
        // The answer is that error again, and the caller has it already.
        let _ = self.ask_for(Command { job: Box::new(job), after_loss: true });
    }
}

fn lost(what: &str) -> Error {
    Error::Transport { name: "MPI", what: what.to_owned() }
}

impl Ends {
    fn begin(&mut self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| lost("it was ended before"))?;
        self.unanswered += 1;
        Ok(())
    }

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
pub(crate) struct RankInfo {
    pub(crate) rank: usize,
    pub(crate) world: usize,
    /// Whether all-reduces overlap with computation.
    pub(crate) overlaps: bool,
    /// Whether the other processes may continue after one was lost.
    pub(crate) is_fault_tolerant: bool,
}

impl Worker {
    /// Starts MPI on this thread, and finds this rank.
    fn start(options: MpiOptions, queue: CommandQueue, started: &Sender<Result<RankInfo>>) -> Result<Worker> {
        let communicator = Communicator::start(options.library.as_deref())?;
        let (rank, world) = (communicator.rank(), communicator.world());
        if let Some(expected) = options.world.filter(|expected| *expected != world) {
            return Err(Error::Transport {
                name: "MPI",
                what: format!(
                    "the launcher speaks of {expected} processes, MPI of {world}; \
                     start the program with the mpirun of the library {}",
                    communicator.name()
                ),
            });
        }
        // At most two short messages to a rank are on their way at a time.
        communicator.attach_buffer((1 << 20) + world * (8 << 10));
        let over_machines = || communicator.world_of_machine() < world;
        let overlaps = world > 1 && options.overlap.unwrap_or_else(over_machines);
        let is_fault_tolerant = communicator.is_fault_tolerant();
        let _ = started.send(Ok(RankInfo { rank, world, overlaps, is_fault_tolerant }));
        let (received, timeout, is_done) = (Vec::new(), options.timeout, false);
        let (replicas, first_rank) = (vec![1; world], rank);
        Ok(Worker { communicator, rank, world, first_rank, replicas, timeout, queue, received, is_done })
    }

    /// Executes commands until the last.
    fn run(mut self) {
        while !self.is_done
            && let Ok(Command { job, after_loss }) = self.queue.commands.recv()
        {
            let may_come = after_loss || !self.queue.shared.lost.load(Ordering::Relaxed);
            let done = if may_come { job(&mut self) } else { Err(Lost) };
            if done.is_err() && may_come {
                self.queue.shared.lost.store(true, Ordering::Relaxed);
                self.communicator.revoke();
            }
            self.queue.answer(done.map_err(|Lost| Error::Lost));
        }
    }
}
