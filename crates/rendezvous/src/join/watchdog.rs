use super::channel::{Peer, ReceiveError, Receiver, Sender};
use super::group::ProcessGroup;
use super::message::{Message, Progress};
use crate::system::{Instant, Mutex, MutexGuard, sleep, spawn};
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// The number of heartbeats within the longest silence.
const BEATS: u32 = 4;
/// Enough for a busy machine and a network that sends lost packets again.
const LEAST_SILENCE: Duration = Duration::from_secs(10);
/// How long a finished process waits for the others to notice.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often the thread of the heartbeat looks whether the watchdog has ended.
const GLANCE: Duration = Duration::from_millis(500);

/// Notices which process of a run has died or fallen silent, while the others wait for it in a collective.
///
/// All processes send rank 0 a heartbeat with their step, and rank 0 sends its own. If one is silent for too
/// long, stays behind the others, or its connection ends before it has finished, rank 0 tells all others. A
/// collective can poll [`failed`](Watchdog::failed) and give up with the name of the lost rank. Long
/// steps are no silence: heartbeats come from a separate thread.
#[derive(Clone)]
pub struct Watchdog(Arc<Shared>);

struct Shared {
    own: Mutex<Progress>,
    /// The first failure.
    failed: OnceLock<String>,
    /// This process has ended its watchdog.
    closed: AtomicBool,
    /// `None` for processes that have finished or are lost.
    senders: Mutex<Vec<Option<Sender>>>,
    silence: Duration,
    /// The connected processes, and their last progress.
    heard: Vec<(String, Mutex<Progress>)>,
    /// How long a rank may stay behind the others. Only rank 0, which is connected to all, checks this.
    patience: Option<Duration>,
}

/// The longest silence of a process that the others wait for no longer than `timeout`: a tenth of it, but at
/// least 10 seconds, or all of it if that is less.
pub fn longest_silence(timeout: Duration) -> Duration {
    (timeout / 10).max(LEAST_SILENCE).min(timeout)
}

impl Watchdog {
    /// Watches the connected processes, which take their [`step`](Watchdog::step)s and
    /// [`enter`](Watchdog::enter) their collectives together. `timeout`, the same on all, is how long one may
    /// stay behind the others. A process is lost after its [`longest_silence`].
    ///
    /// # Errors
    /// [`Error::Thread`] if the system gives no threads.
    pub fn start(group: ProcessGroup, timeout: Duration) -> Result<Watchdog> {
        let rank = group.own.rank;
        let (mut senders, mut receivers, mut heard) = (Vec::new(), Vec::new(), Vec::new());
        for peer in group.peers {
            heard.push((peer.name(), Mutex::default()));
            let Peer { channel, .. } = peer;
            senders.push(Some(channel.sender));
            receivers.push(channel.receiver);
        }
        let watch = Watchdog(Arc::new(Shared {
            own: Mutex::default(),
            failed: OnceLock::new(),
            closed: AtomicBool::new(false),
            senders: Mutex::new(senders),
            silence: longest_silence(timeout),
            heard,
            patience: (rank == 0).then_some(timeout),
        }));
        for (at, receiver) in receivers.into_iter().enumerate() {
            let shared = Arc::clone(&watch.0);
            spawn("listener", move || shared.listen(at, receiver)).map_err(Error::Thread)?;
        }
        let shared = Arc::clone(&watch.0);
        spawn("heartbeat", move || shared.beat()).map_err(Error::Thread)?;
        Ok(watch)
    }

    /// Reports this process's step, which the others show if it is lost.
    pub fn step(&self, step: u64) {
        *progress(&self.0.own) = Progress { step, entered: 0 };
    }

    /// Reports that this process has come to a collective, in a step or after it. A process that waits in one
    /// is ahead of the one that it waits for.
    pub fn enter(&self) {
        progress(&self.0.own).entered += 1;
    }

    /// The first failure, if any: the same sentence on all processes that it reached.
    pub fn failed(&self) -> Option<String> {
        self.0.failed.get().cloned()
    }

    /// Tells all others that this process gives up.
    pub fn fail(&self, reason: &str) {
        self.0.fail(reason.to_owned());
    }

    /// Ends the watchdog. This process has finished, so its silence is no failure any more.
    pub fn finish(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.tell(&Message::Done);
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && self.0.lock().iter().any(Option::is_some) {
            sleep(Duration::from_millis(1));
        }
        self.0.lock().iter_mut().filter_map(Option::take).for_each(|sender| sender.close());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Sender>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the messages of one process until it has finished or is lost.
    fn listen(&self, at: usize, mut receiver: Receiver) {
        let (name, last) = &self.heard[at];
        let lost = loop {
            let heard = receiver.receive(Instant::now() + self.silence);
            let step = progress(last).step;
            match heard {
                Ok(Message::Beat(latest)) => *progress(last) = latest,
                Ok(Message::Done) => break None,
                Ok(Message::Failed(sentence)) => break Some(sentence),
                Err(ReceiveError::Late) => {
                    let seconds = self.silence.as_secs_f64();
                    break Some(format!("{name} has not been heard of for {seconds} s (last step {step})"));
                }
                Err(ReceiveError::Gone) => {
                    break Some(format!("{name} has ended unexpectedly (last step {step})"));
                }
                Ok(_) | Err(ReceiveError::Forged | ReceiveError::OtherSecret) => {
                    break Some(format!("another process posed as {name} (last step {step})"));
                }
            }
        };
        let sender = self.lock()[at].take();
        if let Some(sender) = sender {
            sender.close();
        }
        if let Some(sentence) = lost.filter(|_| !self.closed.load(Ordering::Relaxed)) {
            self.fail(sentence);
        }
    }

    /// Sends heartbeats until the watchdog ends.
    fn beat(&self) {
        let (mut last, mut since, mut next) = (Vec::new(), Instant::now(), Instant::now());
        while !self.closed.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                next = Instant::now() + self.silence / BEATS;
                let own = *progress(&self.own);
                self.tell(&Message::Beat(own));
                let now = self.all();
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if self.patience.is_some_and(|patience| since.elapsed() >= patience) {
                    self.name_who_stays_behind(&last, since.elapsed());
                }
            }
            sleep(GLANCE.min(self.silence / BEATS));
        }
    }

    /// The progress of this process, and of the connected ones.
    fn all(&self) -> Vec<Progress> {
        let heard = self.heard.iter().map(|(_, last)| last);
        std::iter::once(&self.own).chain(heard).map(|last| *progress(last)).collect()
    }

    fn name_who_stays_behind(&self, all: &[Progress], waited: Duration) {
        let ahead = all.iter().max().copied().unwrap_or_default();
        // The furthest behind: the others may wait for it.
        let Some((at, last)) = all.iter().enumerate().min_by_key(|(_, last)| **last) else { return };
        if *last == ahead {
            return;
        }
        let name = at.checked_sub(1).map_or("rank 0", |at| &self.heard[at].0);
        let (step, waited) = (last.step, waited.as_secs_f64());
        self.fail(format!("{name} has kept the others waiting for {waited:.1} s (last step {step})"));
    }

    /// Keeps the first failure, and passes it on.
    fn fail(&self, sentence: String) {
        if self.failed.set(sentence.clone()).is_ok() {
            self.tell(&Message::Failed(sentence));
        }
    }

    /// Sends a message to all others. A failure is left to the listener.
    fn tell(&self, message: &Message) {
        let until = Instant::now() + self.silence / BEATS;
        for sender in self.lock().iter_mut().flatten() {
            let _ = sender.send(message, until);
        }
    }
}

fn progress(of: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_follows_the_time_out() {
        for (timeout, silence) in [(2, 2), (10, 10), (15, 10), (100, 10), (300, 30), (3600, 360)] {
            let longest = longest_silence(Duration::from_secs(timeout));
            assert_eq!(longest, Duration::from_secs(silence), "{timeout} s");
        }
    }
}
