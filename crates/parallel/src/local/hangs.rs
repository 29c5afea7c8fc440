//! Threads of a run that keep the others waiting.

use super::abort::Participant;
use core::cell::RefCell;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How long a thread may keep the others waiting, by default: longer than rank 0 takes to write a checkpoint,
/// but short enough not to pay for a run that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// A hang is noticed after so many looks. Looks are counted, not seconds: a process that was stopped for an
/// hour has missed one look.
const LOOKS: u32 = 10;

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Computes,
    /// Waits for other threads of this process.
    Waits,
    /// Waits for other processes, by something that has its own time-out.
    WaitsOutside,
    Ended,
}

/// What a thread does, for others to see.
#[derive(Default)]
pub(crate) struct Mark {
    /// With the number of changes.
    doing: Mutex<(Doing, u64)>,
    failure: OnceLock<String>,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Mark>>> = const { RefCell::new(None) };
}

/// Waits for other threads of this process. A thread that computes meanwhile, for longer than the time-out,
/// is taken for hung.
pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    doing(Doing::Waits, wait)
}

/// Waits for other processes, by something that has its own time-out.
pub(crate) fn waiting_outside<T>(wait: impl FnOnce() -> T) -> T {
    doing(Doing::WaitsOutside, wait)
}

fn doing<T>(what: Doing, act: impl FnOnce() -> T) -> T {
    let set = |what| OWN.with_borrow(|own| own.as_ref().map(|own| own.set(what)));
    let before = set(what);
    let done = act();
    before.map(set);
    done
}

impl Mark {
    fn lock(&self) -> MutexGuard<'_, (Doing, u64)> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the previous state.
    fn set(&self, what: Doing) -> Doing {
        let mut doing = self.lock();
        doing.1 += 1;
        core::mem::replace(&mut doing.0, what)
    }

    /// Says that the thread has ended, and how it failed.
    pub(crate) fn end(&self, failure: Option<String>) {
        failure.map(|failure| self.failure.set(failure));
        self.set(Doing::Ended);
    }

    /// Makes this the mark of the current thread.
    pub(crate) fn adopt(self: &Arc<Self>) {
        OWN.set(Some(Arc::clone(self)));
    }
}

/// Notices threads that hang: one that has come to no operation for the time-out, while another has waited
/// for so long. A thread that waits is never taken for one, so only the cause is named.
pub(crate) struct Hangs {
    patience: Duration,
    threads: Vec<Watched>,
    /// The first failure, and the number of looks since.
    failure: Option<(String, u32)>,
}

struct Watched {
    participant: Arc<Participant>,
    mark: Arc<Mark>,
    /// At the last look.
    seen: (Doing, u64),
    /// The number of looks without a change.
    looks: u32,
}

impl Watched {
    fn is_stuck(&self, doing: Doing) -> bool {
        self.seen.0 == doing && self.looks >= LOOKS
    }
}

impl Hangs {
    pub(crate) fn new(patience: Duration) -> Hangs {
        Hangs { patience, threads: Vec::new(), failure: None }
    }

    /// Watches a thread by the mark that is returned.
    pub(crate) fn add(&mut self, participant: &Arc<Participant>) -> Arc<Mark> {
        let (participant, mark) = (Arc::clone(participant), Arc::<Mark>::default());
        let seen = Default::default();
        self.threads.push(Watched { participant, mark: Arc::clone(&mark), seen, looks: 0 });
        mark
    }

    /// The time between two looks.
    pub(crate) fn pause(&self) -> Duration {
        (self.patience / LOOKS).max(Duration::from_millis(1))
    }

    /// Looks at all threads. Stops them if one hangs. Returns the sentence with which the process must end:
    /// nothing stops a thread that does not end after a failure.
    pub(crate) fn look(&mut self) -> Option<String> {
        for thread in &mut self.threads {
            let now = *thread.mark.lock();
            thread.looks = if now == thread.seen { thread.looks + 1 } else { 0 };
            thread.seen = now;
        }
        let seconds = self.patience.as_secs_f64();
        let running = self.names(|thread| thread.seen.0 != Doing::Ended);
        if let Some((failure, looks)) = &mut self.failure {
            *looks += 1;
            let gives_up = *looks > LOOKS && !running.is_empty();
            return gives_up.then(|| {
                format!("{failure}; {running} did not end within {seconds} seconds after that, so this process ends")
            });
        }
        if let Some(failure) = self.threads.iter().find_map(|thread| thread.mark.failure.get()) {
            self.failure = Some((failure.clone(), 0));
        } else if self.threads.iter().any(|thread| thread.is_stuck(Doing::Waits)) {
            let hung = self.names(|thread| thread.is_stuck(Doing::Computes));
            let all_wait = |thread: &Watched| thread.seen.0 == Doing::Ended || thread.is_stuck(Doing::Waits);
            let reason = match hung.as_str() {
                "" if self.threads.iter().all(all_wait) => {
                    format!("all have waited for each other for {seconds} seconds")
                }
                "" => return None,
                hung => format!("{hung} kept the others waiting for {seconds} seconds"),
            };
            // No thread has this number: each takes the failure for another's.
            let of_none = usize::MAX;
            let all = self.threads.first().map(|thread| Arc::clone(&thread.participant.all));
            all.iter().flat_map(|all| all.iter()).for_each(|point| _ = point.abort(of_none, &reason));
            self.failure = Some((reason, 0));
        }
        None
    }

    /// The names of some threads.
    fn names(&self, which: impl Fn(&Watched) -> bool) -> String {
        let those = self.threads.iter().filter(|thread| which(thread));
        those.map(|thread| thread.participant.who.as_str()).collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::abort::Abortable;
    use crate::local::barrier::Barrier;

    /// So many threads, with their marks and the point where they wait.
    fn watched(count: usize) -> (Hangs, Vec<Arc<Mark>>, Arc<Barrier>) {
        let (mut hangs, point) = (Hangs::new(Duration::from_secs(5)), Arc::new(Barrier::new(count)));
        let all: Arc<[Arc<dyn Abortable>]> = [Arc::clone(&point) as Arc<dyn Abortable>].into();
        let add = |number| {
            let (own, all, who) = (Vec::new(), Arc::clone(&all), format!("replica {number}"));
            hangs.add(&Arc::new(Participant { number, replica: number, who, own, all }))
        };
        let marks = (0..count).map(add).collect();
        (hangs, marks, point)
    }

    fn look(hangs: &mut Hangs, times: u32) {
        (0..times).for_each(|_| assert_eq!(hangs.look(), None));
    }

    #[test]
    fn who_computes_while_others_wait_is_named() {
        let (mut hangs, marks, point) = watched(3);
        marks[0].set(Doing::Waits);
        marks[2].set(Doing::Waits);
        look(&mut hangs, LOOKS);
        assert_eq!(point.failure(), None);
        look(&mut hangs, 1);
        let told = "replica 1 kept the others waiting for 5 seconds";
        assert_eq!(point.failure().as_deref(), Some(told));
        look(&mut hangs, LOOKS);
        marks[0].end(None);
        marks[2].end(Some("stopped".into()));
        let ending =
            format!("{told}; replica 1 did not end within 5 seconds after that, so this process ends");
        assert_eq!(hangs.look(), Some(ending));
        marks[1].end(None);
        look(&mut hangs, 2 * LOOKS);
    }

    /// Its operations may be others than the one that a thread waits for: the next stage's, for example.
    #[test]
    fn who_comes_to_operations_is_not_hung() {
        let (mut hangs, marks, point) = watched(2);
        marks[0].set(Doing::Waits);
        for _ in 0..3 {
            marks[1].set(Doing::Computes);
            look(&mut hangs, LOOKS);
        }
        assert_eq!(point.failure(), None);
    }

    #[test]
    fn nobody_is_named_where_nobody_waits() {
        let (mut hangs, marks, point) = watched(2);
        look(&mut hangs, 3 * LOOKS);
        marks[0].set(Doing::WaitsOutside);
        marks[1].set(Doing::Waits);
        look(&mut hangs, 3 * LOOKS);
        assert_eq!(point.failure(), None, "another process may be the cause");
    }

    #[test]
    fn threads_that_wait_for_each_other_end() {
        let (mut hangs, marks, point) = watched(3);
        marks[0].end(None);
        marks[1..].iter().for_each(|mark| _ = mark.set(Doing::Waits));
        look(&mut hangs, LOOKS + 1);
        assert_eq!(point.failure().as_deref(), Some("all have waited for each other for 5 seconds"));
    }

    #[test]
    fn who_does_not_end_after_a_failure_is_named() {
        let (mut hangs, marks, _) = watched(2);
        marks[0].end(Some("replica 0 failed: the disk is full".into()));
        look(&mut hangs, LOOKS + 1);
        let told = "replica 0 failed: the disk is full; replica 1 did not end within 5 seconds";
        assert!(hangs.look().unwrap().starts_with(told));
    }

    #[test]
    fn a_wait_within_another_is_part_of_it() {
        let mark = Arc::<Mark>::default();
        mark.adopt();
        let now = || mark.lock().0;
        let seen = waiting_outside(|| [now(), waiting(now), now()]);
        assert_eq!(seen, [Doing::WaitsOutside, Doing::Waits, Doing::WaitsOutside]);
        assert_eq!(now(), Doing::Computes);
    }
}
