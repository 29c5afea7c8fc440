use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// How long a waiting thread spins before it sleeps: about 100 microseconds, longer than the gap between two ops.
const SPINS: u32 = 2_000;

/// A pool of threads that run one loop at a time, allocating nothing per loop.
///
/// The calling thread works too, so `Threads::new(1)` starts none. Which thread runs which task is left open: a
/// task must write where no other task of the loop reads or writes.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Held while a loop runs: loops of several callers take turns.
    turn: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

/// What a loop does, given which thread works (below the pool's count) and which task.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A loop body with its lifetime erased; only dereferenced while `Threads::run_on` waits for the loop.
#[derive(Clone, Copy)]
struct Body(*const Task<'static>);

// SAFETY: the pointer is to a `Sync` closure that outlives the loop (see `Threads::run_on`).
unsafe impl Send for Body {}

struct Shared {
    /// The current loop: its body and number of tasks; workers join when `round` changes.
    job: Mutex<Option<(Body, usize)>>,
    wake: Condvar,
    round: AtomicUsize,
    next: AtomicUsize,
    working: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Threads {
    /// A pool in which `count` threads work, the caller among them.
    pub(crate) fn new(count: usize) -> Self {
        let shared = Arc::new(Shared {
            job: Mutex::new(None),
            wake: Condvar::new(),
            round: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let workers = (1..count)
            .map_while(|k| {
                let shared = Arc::clone(&shared);
                let builder = std::thread::Builder::new().name(format!("towers-cpu-{k}"));
                builder.spawn(move || shared.work(k)).ok()
            })
            .collect();
        Threads { shared, turn: Mutex::new(()), workers }
    }

    /// How many threads work, the caller among them.
    pub(crate) fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(0)`, ..., `body(tasks - 1)`, each once, and returns when all are done.
    ///
    /// # Panics
    /// If a task panics, after the other tasks have ended.
    pub(crate) fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.run_on(tasks, &|_, task| body(task));
    }

    /// As [`Threads::run`], and tells the body which thread it runs on, below [`Threads::count`]: tasks that run at
    /// the same time have different threads, so each thread may own a piece of scratch memory.
    ///
    /// # Panics
    /// As [`Threads::run`].
    pub(crate) fn run_on(&self, tasks: usize, body: &Task<'_>) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(|task| body(0, task));
            return;
        }
        let _turn = lock(&self.turn);
        let shared = &*self.shared;
        shared.next.store(0, Relaxed);
        shared.working.store(self.workers.len(), Relaxed);
        {
            // SAFETY: only the lifetime changes. Workers use the body between here and their decrement of `working`,
            // and this function does not return, or unwind, before `working` is 0.
            let body = unsafe { core::mem::transmute::<&Task<'_>, &'static Task<'static>>(body) };
            // The round changes under the lock: a worker that has found nothing to do and holds it is asleep, and can be
            // woken, before it lets go.
            let mut job = lock(&shared.job);
            *job = Some((Body(body), tasks));
            shared.round.fetch_add(1, Release);
        }
        shared.wake.notify_all();
        let own = catch_unwind(AssertUnwindSafe(|| shared.claim(0, tasks, body)));
        let mut spins = 0;
        while shared.working.load(Acquire) > 0 {
            if spins < SPINS {
                spins += 1;
                core::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        if let Err(panic) = own {
            shared.panicked.store(false, Relaxed);
            resume_unwind(panic);
        }
        assert!(!shared.panicked.swap(false, Relaxed), "a task of a parallel loop panicked");
    }
}

impl Shared {
    /// Runs tasks that no other thread has claimed until there are none.
    fn claim(&self, thread: usize, tasks: usize, body: &Task<'_>) {
        loop {
            let task = self.next.fetch_add(1, Relaxed);
            if task >= tasks {
                return;
            }
            body(thread, task);
        }
    }

    /// A worker's life: wait for a new round, join it, report.
    fn work(&self, thread: usize) {
        let mut seen = 0;
        while let Some((body, tasks)) = self.next_job(&mut seen) {
            // SAFETY: `run_on` keeps the body alive until this worker has decremented `working` below.
            let body = unsafe { &*body.0 };
            if catch_unwind(AssertUnwindSafe(|| self.claim(thread, tasks, body))).is_err() {
                self.panicked.store(true, Relaxed);
            }
            self.working.fetch_sub(1, Release);
        }
    }

    /// Waits for a round after `seen`; `None` when the pool is dropped.
    fn next_job(&self, seen: &mut usize) -> Option<(Body, usize)> {
        for _ in 0..SPINS {
            if self.round.load(Acquire) != *seen || self.stop.load(Relaxed) {
                break;
            }
            core::hint::spin_loop();
        }
        let mut job = lock(&self.job);
        while self.round.load(Acquire) == *seen && !self.stop.load(Relaxed) {
            job = self.wake.wait(job).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *seen = self.round.load(Acquire);
        if self.stop.load(Relaxed) { None } else { *job }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        {
            let _job = lock(&self.shared.job);
            self.shared.stop.store(true, Relaxed);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its tasks' panics, so joining cannot fail in a way that matters here.
            let _ = worker.join();
        }
    }
}

/// A slice that the tasks of one loop share, each writing its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shards<'a, T = f32> {
    start: *mut T,
    len: usize,
    life: core::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: tasks get parts through the unsafe `part`, whose caller promises that parts do not overlap.
unsafe impl<T: Send> Send for Shards<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shards<'_, T> {}

impl<'a, T> Shards<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shards { start: slice.as_mut_ptr(), len: slice.len(), life: core::marker::PhantomData }
    }

    /// The elements in `range`.
    ///
    /// # Safety
    /// No other part that is alive may overlap this one.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, range: core::ops::Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a task's part lies outside of the slice");
        // SAFETY: inside the slice by the check above, and not shared by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first element's address, for kernels that write strided parts.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_runs_once() {
        for count in [1, 2, 5] {
            let threads = Threads::new(count);
            for tasks in [0, 1, 2, 7, 1000] {
                let seen: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
                threads.run(tasks, &|k| {
                    seen[k].fetch_add(1, Relaxed);
                });
                assert!(seen.iter().all(|s| s.load(Relaxed) == 1));
            }
        }
    }

    #[test]
    fn tasks_at_one_time_have_different_threads() {
        let threads = Threads::new(3);
        let busy: [AtomicBool; 3] = Default::default();
        threads.run_on(500, &|thread, _| {
            assert!(!busy[thread].swap(true, SeqCst));
            std::thread::yield_now();
            busy[thread].store(false, SeqCst);
        });
    }

    #[test]
    fn a_panicking_task_is_reported_and_the_pool_lives_on() {
        let threads = Threads::new(3);
        for bad in 0..8 {
            let result = catch_unwind(AssertUnwindSafe(|| threads.run(8, &|k| assert_ne!(k, bad))));
            assert!(result.is_err());
        }
        let sum = AtomicU64::new(0);
        threads.run(10, &|k| {
            sum.fetch_add(k as u64, Relaxed);
        });
        assert_eq!(sum.load(Relaxed), 45);
    }

    #[test]
    fn loops_of_several_callers_take_turns() {
        let threads = Threads::new(2);
        let sum = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        threads.run(5, &|k| {
                            sum.fetch_add(k as u64, Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Relaxed), 4 * 200 * 10);
    }
}
