//! Threads that make the steps of a job ahead of time and hand them out in order.
//!
//! Chance decides which thread makes a step. The result depends on the job and the step alone. Without
//! threads, `next` makes each step when it is called.

use crate::Error;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Fills a buffer with one step of a job.
pub(crate) type Make<J, T> = dyn Fn(&J, usize, &mut T) -> Result<(), Error> + Send + Sync;

/// Buffers waiting for their next use.
pub(crate) struct Pool<T> {
    spare: Mutex<Vec<T>>,
    new: Box<dyn Fn() -> T + Send + Sync>,
}

impl<T> Pool<T> {
    /// A pool that starts with `count` buffers, and keeps at most as many.
    pub(crate) fn new(count: usize, new: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Pool { spare: Mutex::new((0..count).map(|_| new()).collect()), new: Box::new(new) }
    }

    fn take(&self) -> T {
        let spare = lock(&self.spare).pop();
        spare.unwrap_or_else(|| (self.new)())
    }

    pub(crate) fn put(&self, buffer: T) {
        let mut spare = lock(&self.spare);
        if spare.len() < spare.capacity() {
            spare.push(buffer);
        }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// Which steps are wanted, claimed by a worker, and done.
struct State<J, T> {
    job: Option<J>,
    /// Counts the jobs, so that a worker can see that its result is no longer wanted.
    generation: u64,
    /// The first step that no worker has claimed.
    next: usize,
    /// The first step that was not handed out.
    taken: usize,
    end: usize,
    /// Results by step modulo their number. A step is claimed only when its place has become free.
    done: Vec<Option<Result<T, Error>>>,
    stop: bool,
}

struct Shared<J, T> {
    state: Mutex<State<J, T>>,
    /// Signalled when there may be a step to claim, or when it is time to stop.
    work: Condvar,
    /// Signalled when a step is done.
    ready: Condvar,
    pool: Arc<Pool<T>>,
    make: Box<Make<J, T>>,
}

/// Makes the steps of one job after the other; see the module.
pub(crate) struct Prefetcher<J, T> {
    shared: Arc<Shared<J, T>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J: Clone + Send + 'static, T: Send + 'static> Prefetcher<J, T> {
    /// Starts `workers` threads that stay at most `depth` (at least 1) steps ahead.
    pub(crate) fn new(
        workers: usize,
        depth: usize,
        pool: Arc<Pool<T>>,
        make: Box<Make<J, T>>,
    ) -> Result<Self, Error> {
        let done = (0..depth).map(|_| None).collect();
        let state = State { job: None, generation: 0, next: 0, taken: 0, end: 0, done, stop: false };
        let shared =
            Arc::new(Shared { state: state.into(), work: Condvar::new(), ready: Condvar::new(), pool, make });
        // If a thread can't be had, dropping this ends those that could.
        let mut prefetcher = Prefetcher { shared, threads: Vec::with_capacity(workers) };
        for worker in 0..workers {
            let shared = Arc::clone(&prefetcher.shared);
            let thread = Builder::new().name(format!("augment-{worker}")).spawn(move || shared.work());
            prefetcher.threads.push(thread.map_err(|error| Error::Spawn { reason: error.to_string() })?);
        }
        Ok(prefetcher)
    }

    /// Drops the rest of the previous job and begins with step `start` of a new one.
    pub(crate) fn start(&self, job: J, start: usize, end: usize) {
        let mut state = self.clear();
        (state.job, state.next, state.taken, state.end) = (Some(job), start, start, end);
        drop(state);
        self.shared.work.notify_all();
    }

    /// Drops the rest of the job.
    pub(crate) fn cancel(&self) {
        drop(self.clear());
    }

    fn clear(&self) -> MutexGuard<'_, State<J, T>> {
        let mut state = lock(&self.shared.state);
        for buffer in state.done.iter_mut().filter_map(Option::take).flatten() {
            self.shared.pool.put(buffer);
        }
        state.generation += 1;
        (state.job, state.next, state.taken, state.end) = (None, 0, 0, 0);
        state
    }

    /// The next step and its number; `None` after the last one.
    pub(crate) fn next(&self) -> Option<(usize, Result<T, Error>)> {
        let mut state = lock(&self.shared.state);
        let step = state.taken;
        if step >= state.end {
            return None;
        }
        if self.threads.is_empty() {
            state.taken += 1;
            let job = state.job.clone()?;
            drop(state);
            return Some((step, self.shared.attempt(&job, step)));
        }
        let place = step % state.done.len();
        loop {
            if let Some(result) = state.done[place].take() {
                state.taken += 1;
                drop(state);
                self.shared.work.notify_one();
                return Some((step, result));
            }
            state = wait(&self.shared.ready, state);
        }
    }
}

impl<J, T> Drop for Prefetcher<J, T> {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A worker catches every panic of `make`, so there is none to pass on.
            let _ = thread.join();
        }
    }
}

impl<J: Clone, T> Shared<J, T> {
    /// A worker's life.
    fn work(&self) {
        let mut state = lock(&self.state);
        while !state.stop {
            let limit = state.end.min(state.taken + state.done.len());
            let claimed = state.job.clone().filter(|_| state.next < limit);
            let Some(job) = claimed else {
                state = wait(&self.work, state);
                continue;
            };
            let (step, generation) = (state.next, state.generation);
            state.next += 1;
            drop(state);
            let result = self.attempt(&job, step);
            drop(job);
            state = lock(&self.state);
            if state.generation == generation {
                let place = step % state.done.len();
                state.done[place] = Some(result);
                self.ready.notify_one();
            } else if let Ok(buffer) = result {
                self.pool.put(buffer);
            }
        }
    }

    /// Makes one step; a panic becomes an error.
    fn attempt(&self, job: &J, step: usize) -> Result<T, Error> {
        let mut buffer = self.pool.take();
        // A buffer that a panic left half-written is given back, and overwritten at its next use.
        let made = catch_unwind(AssertUnwindSafe(|| (self.make)(job, step, &mut buffer)));
        match made.unwrap_or_else(|panic| Err(Error::Worker { step, message: message(&*panic) })) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.pool.put(buffer);
                Err(error)
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

/// Nothing panics while it holds one of our locks, so a poisoned one is still in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(signal: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetcher(workers: usize, make: Box<Make<usize, usize>>) -> Prefetcher<usize, usize> {
        Prefetcher::new(workers, 3, Arc::new(Pool::new(4, || 0)), make).unwrap()
    }

    #[test]
    fn steps_come_in_order_whatever_the_workers_do() {
        for workers in [0, 1, 4] {
            let p = prefetcher(
                workers,
                Box::new(|job, step, out| {
                    if step % 3 == 0 {
                        std::thread::yield_now();
                    }
                    *out = job * 1000 + step;
                    Ok(())
                }),
            );
            for job in 1..20 {
                p.start(job, job, 40);
                // Some jobs are left half-way.
                let wanted = if job % 4 == 0 { 5 } else { 100 };
                let steps: Vec<_> = std::iter::from_fn(|| p.next()).take(wanted).collect();
                let expected: Vec<_> =
                    (job..40).map(|step| (step, Ok(job * 1000 + step))).take(wanted).collect();
                assert_eq!(steps, expected);
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_worker_lives_on() {
        for workers in [0, 1, 2] {
            let p = prefetcher(
                workers,
                Box::new(|_, step, _| {
                    assert!(step != 2, "no step {step}");
                    Ok(())
                }),
            );
            for _ in 0..3 {
                p.start(0, 0, 5);
                let steps: Vec<_> = std::iter::from_fn(|| p.next()).collect();
                let message = "no step 2".to_owned();
                assert_eq!(steps[2], (2, Err(Error::Worker { step: 2, message })));
                assert_eq!(steps.iter().filter(|(_, result)| result.is_ok()).count(), 4);
            }
        }
    }
}
