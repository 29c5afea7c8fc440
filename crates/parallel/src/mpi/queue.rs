use crate::{Agreement, Error, Result, SumTree};
use program::Span;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensor_cpu::Buffer as HostBuffer;

/// After a failure the process has this long to end by itself: to tell its user, and to close its files.
const LINGER: Duration = Duration::from_secs(10);

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
    /// end.
    pub(super) fn refuse(&self, error: Error) {
        let reason = match &error {
            Error::Aborted { reason } => reason.clone(),
            other => other.to_string(),
        };
        self.answer(Err(error));
        let began = Instant::now();
        while let Some(left) = LINGER.checked_sub(began.elapsed()) {
            match self.commands.recv_timeout(left) {
                Ok(_) => self.answer(Err(Error::Aborted { reason: reason.clone() })),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left),
            }
        }
    }
}
