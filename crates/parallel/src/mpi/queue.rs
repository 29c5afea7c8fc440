use crate::{Agreement, Error, Result, SumTree};
use program::Span;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensor_cpu::Buffer as HostBuffer;

/// After a failure the process has this long to end by itself: to tell its user, and to close its files.
const LINGER: Duration = Duration::from_secs(10);

/// Whether the job has failed, but continues when this process ends; and whether nothing is left to do but that.
static FAILED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// How often the worker thread looks whether this process is about to end.
const GLANCE: Duration = Duration::from_millis(20);

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

/// A command for the worker thread. Every command gets one answer.
pub(super) enum Command {
    Agree(Agreement),
    /// This process has so many replicas. The answer has the number of each process.
    Replicas(usize),
    /// From index `first` on, the buffer has this process's nodes of the tree, of `len` numbers each, and room
    /// for the sums.
    Reduce {
        buffer: HostBuffer,
        first: usize,
        nodes: usize,
        len: usize,
        tree: SumTree,
    },
    Broadcast {
        buffer: HostBuffer,
        at: Span,
        root: usize,
    },
    Gather {
        buffer: HostBuffer,
        at: Span,
    },
    Barrier,
    /// After a loss: comes together with the processes that are left. The answer has their ranks at the start of
    /// the job.
    Regroup,
    Abort(String),
    Finish,
}

/// The buffer that came with a command, or an empty one.
pub(super) type Answer = Result<HostBuffer>;

/// The worker thread's end of the two channels.
pub(super) struct CommandQueue {
    pub(super) commands: Receiver<Command>,
    pub(super) answers: Sender<Answer>,
    pub(super) beats: Arc<AtomicU64>,
    /// Why this process stops, while the worker waits for others.
    pub(super) called_off: Arc<OnceLock<String>>,
    /// Whether a process was lost. All commands fail until [`Command::Regroup`].
    pub(super) lost: Arc<AtomicBool>,
}

impl CommandQueue {
    /// Says that the worker is not stuck.
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answer(&self, answer: Answer) {
        // Without a receiver the process is ending.
        let _ = self.answers.send(answer);
    }

    /// Answers a command with an error, and all later ones with its text, until the process has had time to
    /// end. `goes_on` says that the job does not end with this process.
    pub(super) fn refuse(&self, error: Error, goes_on: bool) {
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
