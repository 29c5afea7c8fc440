//! Time, threads and processes of a simulation. One thread runs at a time, up to its next call of the system.

use crate::network::{Event as NetworkEvent, Network};
use crate::random::Random;
use core::time::Duration;
use generator::{Generator, Gn};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The stack of a thread, in words.
const STACK: usize = 1 << 14;

type Thread = Generator<'static, (), ()>;

/// What happens at a time.
pub(crate) enum Event {
    /// A thread's wait ends, unless it has ended before.
    Wake {
        thread: usize,
        wait: u64,
    },
    /// A process begins with this thread.
    Start {
        process: usize,
        main: Box<dyn FnOnce() + Send>,
    },
    /// A process ends, by itself or not: the system closes its connections.
    Kill {
        process: usize,
    },
    /// A machine loses power: it closes nothing.
    PowerOff {
        host: usize,
    },
    /// A machine is back, without its processes.
    PowerOn {
        host: usize,
    },
    /// A process is stopped, or continues.
    Freeze {
        process: usize,
        frozen: bool,
    },
    Network(NetworkEvent),
}

struct Task {
    process: usize,
    /// `None` while it runs, and after its end.
    thread: Option<Thread>,
    ready: bool,
    ended: bool,
    /// The number of its waits, and what ends the present one.
    wait: u64,
    key: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Process {
    pub(crate) host: usize,
    pub(crate) alive: bool,
    frozen: bool,
}

pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) processes: Vec<Process>,
    tasks: Vec<Task>,
    running: usize,
    events: BTreeMap<(Duration, u64), Event>,
    number: u64,
    pub(crate) traced: bool,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Looks at the world, or changes it. The thread continues.
pub(crate) fn with<T>(act: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| act(world.as_mut().expect("a simulation runs")))
}

impl World {
    pub(crate) fn new(seed: u64, network: Network, hosts: &[usize], traced: bool) -> World {
        let process = |host: &usize| Process { host: *host, alive: false, frozen: false };
        World {
            now: Duration::ZERO,
            random: Random(seed),
            network,
            processes: hosts.iter().map(process).collect(),
            tasks: Vec::new(),
            running: 0,
            events: BTreeMap::new(),
            number: 0,
            traced,
        }
    }

    pub(crate) fn at(&mut self, time: Duration, event: Event) {
        self.number += 1;
        self.events.insert((time.max(self.now), self.number), event);
    }

    /// The process of the running thread.
    pub(crate) fn process(&self) -> usize {
        self.tasks[self.running].process
    }

    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>10.4} {}", self.now.as_secs_f64(), line());
        }
    }

    pub(crate) fn spawn(&mut self, process: usize, run: impl FnOnce() + Send + 'static) {
        let thread = Gn::<()>::new_opt(STACK, run);
        self.tasks.push(Task { process, thread: Some(thread), ready: true, ended: false, wait: 0, key: 0 });
    }

    /// Ends the waits for this.
    pub(crate) fn wake(&mut self, key: usize) {
        self.tasks.iter_mut().filter(|task| task.key == key).for_each(Task::wake);
    }

    /// The threads of a process that ends, with their numbers, for [`drop_all`].
    fn kill(&mut self, process: usize, closes: bool) -> Vec<(usize, Thread)> {
        if !std::mem::take(&mut self.processes[process].alive) {
            return Vec::new();
        }
        self.trace(|| format!("process {process} ends"));
        crate::network::end_of(self, process, closes);
        let own = self.tasks.iter_mut().enumerate().filter(|(_, task)| task.process == process);
        own.filter_map(|(number, task)| {
            (task.ready, task.ended) = (false, true);
            Some((number, task.thread.take()?))
        })
        .collect()
    }

    /// Returns threads that end.
    fn happen(&mut self, event: Event) -> Vec<(usize, Thread)> {
        match event {
            Event::Wake { thread, wait } if self.tasks[thread].wait == wait => self.tasks[thread].wake(),
            Event::Wake { .. } => {}
            Event::Start { process, main } => {
                self.trace(|| format!("process {process} begins"));
                self.processes[process].alive = true;
                self.spawn(process, main);
            }
            Event::Kill { process } => return self.kill(process, true),
            Event::PowerOff { host } => {
                self.trace(|| format!("machine {host} loses power"));
                self.network.set_power(host, false);
                let there = (0..self.processes.len()).filter(|process| self.processes[*process].host == host);
                return there
                    .collect::<Vec<_>>()
                    .into_iter()
                    .flat_map(|there| self.kill(there, false))
                    .collect();
            }
            Event::PowerOn { host } => self.network.set_power(host, true),
            Event::Freeze { process, frozen } => {
                self.trace(|| {
                    format!("process {process} is {}", if frozen { "stopped" } else { "continued" })
                });
                self.processes[process].frozen = frozen;
            }
            Event::Network(event) => crate::network::happen(self, event),
        }
        Vec::new()
    }

    fn next_ready(&mut self) -> Option<usize> {
        let can_run = |task: &Task| task.ready && !self.processes[task.process].frozen;
        let count = self.tasks.iter().filter(|task| can_run(task)).count();
        let chosen = if count > 1 { self.random.below(count) } else { 0 };
        let can_run = |task: &Task| task.ready && !self.processes[task.process].frozen;
        (0..self.tasks.len()).filter(|task| can_run(&self.tasks[*task])).nth(chosen)
    }
}

impl Task {
    fn wake(&mut self) {
        (self.ready, self.key) = (!self.ended, 0);
        self.wait += 1;
    }
}

/// Runs until nothing more can happen, or this time has come.
pub(crate) fn run(world: World, end: Duration) {
    WORLD.set(Some(world));
    loop {
        if let Some(task) = with(World::next_ready) {
            let mut thread = with(|world| {
                world.running = task;
                world.tasks[task].thread.take().expect("it does not run yet")
            });
            thread.resume();
            let done = thread.is_done();
            with(|world| {
                let own = &mut world.tasks[task];
                own.ended |= done;
                own.ready &= !done;
                if !done {
                    own.thread = Some(thread);
                }
            });
            continue;
        }
        let dropped = with(|world| {
            let ((time, _), event) = world.events.pop_first().filter(|((time, _), _)| *time <= end)?;
            world.now = time;
            Some(world.happen(event))
        });
        let Some(dropped) = dropped else { break };
        drop_all(dropped);
    }
}

/// Drops the values of the threads of a dead process. The last one comes first: it may hold a lock.
fn drop_all(threads: Vec<(usize, Thread)>) {
    for (number, thread) in threads.into_iter().rev() {
        with(|world| world.running = number);
        drop(thread);
    }
}

/// Ends the simulation.
pub(crate) fn finish() {
    let processes = with(|world| 0..world.processes.len());
    processes.for_each(|process| drop_all(with(|world| world.kill(process, false))));
    WORLD.set(None);
}

/// Lets other threads run until something wakes `key`, or until then. May return early. Returns false in a
/// process that has ended, where nothing waits any more.
pub(crate) fn wait(key: usize, until: Option<Duration>) {
    let waits = with(|world| {
        let running = world.running;
        if !world.processes[world.process()].alive {
            return false;
        }
        let task = &mut world.tasks[running];
        (task.ready, task.key) = (false, key);
        let wait = task.wait;
        if let Some(until) = until {
            world.at(until, Event::Wake { thread: running, wait });
        }
        true
    });
    if waits {
        switch();
    }
}

/// Now and then lets other threads run first.
pub(crate) fn may_switch() {
    if with(|world| world.random.one_in(8) && world.processes[world.process()].alive) {
        switch();
    }
}

#[allow(deprecated)]
fn switch() {
    generator::yield_with(());
}
