use super::channel::{ReceiveError, Receiver, Sender};
use super::group::{Peer, ProcessGroup};
use super::message::{Message, Progress};
use crate::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many signs of life within the time-out.
const BEATS: u32 = 4;
/// One who ends waits so long for the others to take note.
const FAREWELL: Duration = Duration::from_secs(1);

/// Notices which process of a run has died or fallen silent, while all wait for it elsewhere.
///
/// All processes send rank 0 a sign of life with their step, and it sends them its own. When one has not been heard of for the
/// time-out, or its connection has ended before it said that it is done, rank 0 tells everybody. What a process has to wait for
/// (NCCL, MPI) can ask [`failed`](Watchdog::failed) and give up with a name. Slow steps are no failure: signs of life come from a
/// thread of their own.
pub struct Watchdog {
    shared: Arc<Shared>,
    listeners: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    own: Mutex<Progress>,
    /// The first thing that went wrong.
    failed: OnceLock<String>,
    /// This process has ended its watch.
    closed: AtomicBool,
    senders: Mutex<Vec<Option<Sender>>>,
    wake: Condvar,
    timeout: Duration,
    /// The others that this process hears, and how far they were last.
    heard: Vec<(String, Mutex<Progress>)>,
    /// How long a rank may stay behind the others; rank 0 alone, who hears all, looks after that.
    patience: Option<Duration>,
}

impl Watchdog {
    /// Watches those who have met. Needs `timeout` to notice one who is silent; all give the same.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(group: ProcessGroup, timeout: Duration) -> Result<Watchdog> {
        Watchdog::with_patience(group, timeout, None)
    }

    /// The same for processes that take their [`step`](Watchdog::step)s and [`enter`](Watchdog::enter) their collectives together: one
    /// that is there, but stays behind the others for `patience`, is named too.
    ///
    /// # Errors
    /// As [`start`](Watchdog::start).
    pub fn start_together(group: ProcessGroup, timeout: Duration, patience: Duration) -> Result<Watchdog> {
        Watchdog::with_patience(group, timeout, Some(patience))
    }

    fn with_patience(group: ProcessGroup, timeout: Duration, patience: Option<Duration>) -> Result<Watchdog> {
        let (mut senders, mut receivers, mut heard) = (Vec::new(), Vec::new(), Vec::new());
        for Peer { rank, host, channel } in group.peers {
            senders.push(Some(channel.sender));
            receivers.push(channel.receiver);
            heard.push((format!("rank {rank} ({host})"), Mutex::default()));
        }
        let shared = Arc::new(Shared {
            own: Mutex::default(),
            failed: OnceLock::new(),
            closed: AtomicBool::new(false),
            senders: Mutex::new(senders),
            wake: Condvar::new(),
            timeout,
            heard,
            patience: patience.filter(|_| group.own.rank == 0),
        });
        let watch = Watchdog { shared: Arc::clone(&shared), listeners: Mutex::default() };
        let failed = |source| Error::Spawn { rank: group.own.rank, source };
        for (at, receiver) in receivers.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let listener = spawn("listener", move || shared.listen(at, receiver)).map_err(failed)?;
            watch.lock_listeners().push(listener);
        }
        spawn("heartbeat", move || shared.beat()).map_err(failed)?;
        Ok(watch)
    }

    /// Says at which step this process is. Others tell it if the process is lost.
    pub fn step(&self, step: u64) {
        self.shared.step(step);
    }

    /// Says that this process has come to a collective, in a step or after it. Who waits in one is ahead of who is waited for.
    pub fn enter(&self) {
        self.shared.enter();
    }

    /// What went wrong, once something has: the same sentence on all processes that it reached.
    pub fn failed(&self) -> Option<String> {
        self.shared.failed.get().cloned()
    }

    /// What asks [`failed`](Watchdog::failed) from anywhere, also when the watch has ended.
    pub fn failures(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.failed.get().cloned()
    }

    /// What says [`step`](Watchdog::step) from anywhere.
    pub fn steps(&self) -> impl Fn(u64) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |step| shared.step(step)
    }

    /// What says [`enter`](Watchdog::enter) from anywhere.
    pub fn entries(&self) -> impl Fn() + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.enter()
    }

    /// Tells all others that this process gives up.
    pub fn fail(&self, reason: &str) {
        self.shared.fail(reason.to_owned());
    }

    /// Ends the watch: this process is done, and its silence is no failure any more.
    pub fn finish(self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.tell(&Message::Done);
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && !self.lock_listeners().iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock_listeners(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without [`finish`](Watchdog::finish) the others take this process for lost, at once.
impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.lock().iter_mut().for_each(|sender| sender.take().iter().for_each(Sender::close));
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Sender>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: u64) {
        *progress(&self.own) = Progress { step, entered: 0 };
    }

    fn enter(&self) {
        progress(&self.own).entered += 1;
    }

    /// Hears one other process until it is done or lost.
    fn listen(&self, at: usize, mut receiver: Receiver) {
        let (name, last) = &self.heard[at];
        let lost = loop {
            let heard = receiver.receive(Instant::now() + self.timeout);
            let step = progress(last).step;
            match heard {
                Ok(Message::Beat(latest)) => *progress(last) = latest,
                Ok(Message::Done) => break None,
                Ok(Message::Failed(sentence)) => break Some(sentence),
                Err(ReceiveError::Late) => {
                    let seconds = self.timeout.as_secs_f64();
                    break Some(format!("{name} has not been heard of for {seconds} s (last step {step})"));
                }
                Err(ReceiveError::Gone) => {
                    break Some(format!("{name} has ended unexpectedly (last step {step})"));
                }
                Ok(_) | Err(ReceiveError::Forged | ReceiveError::OtherSecret) => {
                    break Some(format!("somebody else spoke for {name} (last step {step})"));
                }
            }
        };
        if let Some(sender) = self.lock()[at].take() {
            sender.close();
        }
        if let Some(sentence) = lost.filter(|_| !self.closed.load(Ordering::Relaxed)) {
            self.fail(sentence);
        }
    }

    /// Sends signs of life until the watch ends.
    fn beat(&self) {
        let pause = self.timeout / BEATS;
        let (mut last, mut since) = (Vec::new(), Instant::now());
        while !self.closed.load(Ordering::Relaxed) {
            let own = *progress(&self.own);
            self.tell(&Message::Beat(own));
            let now = self.all();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if self.patience.is_some_and(|patience| since.elapsed() >= patience) {
                self.name_who_stays_behind(&last, since.elapsed());
            }
            let senders = self.lock();
            if !self.closed.load(Ordering::Relaxed) {
                // Who is woken looks at `closed` again.
                drop(self.wake.wait_timeout(senders, pause));
            }
        }
    }

    /// How far this process is, and those that it hears.
    fn all(&self) -> Vec<Progress> {
        let heard = self.heard.iter().map(|(_, last)| last);
        std::iter::once(&self.own).chain(heard).map(|last| *progress(last)).collect()
    }

    fn name_who_stays_behind(&self, all: &[Progress], waited: Duration) {
        let ahead = all.iter().max().copied().unwrap_or_default();
        // Of several the one that is furthest behind: the others may wait for it.
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

    /// Tells all others. One who can't be reached is the listener's business.
    fn tell(&self, message: &Message) {
        let until = Instant::now() + self.timeout / BEATS;
        for sender in self.lock().iter_mut().flatten() {
            let _ = sender.send(message, until);
        }
    }
}

fn progress(of: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}
