use super::abort::{Abortable, Participant};
use super::hangs::{Hangs, Mark, PATIENCE};
use super::members::Members;
#[cfg(feature = "cuda")]
use super::on_device::refuse_clones;
use crate::{Collective, Error, Local};
use core::convert::Infallible;
use core::time::Duration;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::ScopedJoinHandle;
use towers_program::{Device, Span};

/// The argument of a replica's body.
pub struct Replica {
    /// The replica's device.
    pub device: Device,
    /// The collective of all replicas.
    pub collective: Box<dyn Collective>,
}

impl Replica {
    /// A single replica.
    pub fn alone(device: Device) -> Self {
        Replica { device, collective: Box::new(Local::alone()) }
    }

    /// The replica's number, from 0.
    pub fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// How many replicas there are.
    pub fn world(&self) -> usize {
        self.collective.world()
    }

    /// Replaces numbers of this program's own by their sums over all replicas, which call it together. The sums are added in
    /// the order of the [tree](crate::SumTree), so they are the same on every replica.
    ///
    /// # Errors
    /// As [`Collective::all_reduce_sum`].
    pub fn all_reduce_sum(&mut self, numbers: &mut [f32]) -> crate::Result<()> {
        let mut data = self.device.alloc(numbers.len())?;
        self.device.upload(numbers, &mut data, 0)?;
        self.collective.all_reduce_sum(&self.device, &mut data, Span::new(0, numbers.len()))?;
        Ok(self.device.download(&data, 0, numbers)?)
    }
}

/// Runs `body` once for each device, each on a separate thread, and returns the results by rank.
///
/// If a body fails or panics, the collectives of all others fail, so none waits for it forever. The returned
/// error is that first failure, not one that follows from it. Collectives also fail after another body has
/// returned. (On a single device the body runs on the calling thread, and its panic is the caller's.)
///
/// A body that hangs is named too: one that has come to no operation of a collective for 5 minutes, while
/// others wait. ([`run_stages`](crate::run_stages) takes another time-out.) If a body has not returned 5
/// minutes after a failure, nothing can stop its thread: the process prints the failure and ends, with exit
/// status 1.
///
/// A GPU may serve several replicas if it is opened for each: clones of one device share the memory that a step works with.
///
/// # Errors
/// The error of the replica that failed first, and if two devices are clones of one GPU.
pub fn run_replicas<T, E, F>(devices: &[Device], body: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + core::fmt::Display + Send,
    F: Fn(Replica) -> Result<T, E> + Sync,
{
    run_within(devices, PATIENCE, body)
}

/// The same with this time-out.
pub(crate) fn run_within<T, E, F>(devices: &[Device], patience: Duration, body: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + core::fmt::Display + Send,
    F: Fn(Replica) -> Result<T, E> + Sync,
{
    match devices {
        [] => Ok(Vec::new()),
        [device] => Ok(vec![body(Replica::alone(device.clone()))?]),
        _ => run_members(devices, Members::of(devices, patience)?, body),
    }
}

/// The same with the members of an existing group, one for each device.
///
/// # Errors
/// As [`run_replicas`].
pub fn run_members<T, E, F>(devices: &[Device], group: Members, body: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + core::fmt::Display + Send,
    F: Fn(Replica) -> Result<T, E> + Sync,
{
    #[cfg(feature = "cuda")]
    refuse_clones(devices)?;
    let Members { collectives, barrier, across, patience } = group;
    let across = across.map(|across| across as Arc<dyn Abortable>);
    let all: Arc<[Arc<dyn Abortable>]> = [barrier as _].into_iter().chain(across).collect();
    let member = |(device, collective): (&Device, Box<dyn Collective>)| {
        let (rank, all) = (collective.rank(), Arc::clone(&all));
        let participant = Participant {
            number: rank,
            replica: rank,
            who: format!("replica {rank}"),
            own: all.to_vec(),
            all,
        };
        (Replica { device: device.clone(), collective }, participant)
    };
    run_threads(devices.iter().zip(collectives).map(member).collect(), patience, body)
}

/// Runs `body` once for each member, each on a separate thread.
pub(crate) fn run_threads<M, T, E, F>(
    members: Vec<(M, Participant)>,
    patience: Duration,
    body: F,
) -> Result<Vec<T>, E>
where
    M: Send,
    T: Send,
    E: From<Error> + core::fmt::Display + Send,
    F: Fn(M) -> Result<T, E> + Sync,
{
    let body = &body;
    let mut hangs = Hangs::new(patience);
    // Each thread drops its end when it ends.
    let (running, ended) = channel::<Infallible>();
    let results: Vec<Result<T, Failure<E>>> = std::thread::scope(|scope| {
        let spawn = |(member, participant): (M, Participant)| {
            let (name, replica) = (participant.who.replace(' ', "-"), participant.replica);
            let participant = Arc::new(participant);
            let (own, mark, running) = (Arc::clone(&participant), hangs.add(&participant), running.clone());
            let ends = Arc::clone(&mark);
            let run = move || {
                let _running = running;
                mark.adopt();
                run_one(member, &own, &mark, body)
            };
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
            if let Err(source) = &thread {
                let how = format!("could not be started: {source}");
                participant.abort(&how);
                ends.end(Some(how));
            }
            (replica, thread)
        };
        let threads: Vec<_> = members.into_iter().map(spawn).collect();
        drop(running);
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(hangs.pause()) {
            if let Some(sentence) = hangs.look() {
                eprintln!("error: {sentence}");
                std::process::exit(1);
            }
        }
        let join = |(rank, thread): (usize, std::io::Result<ScopedJoinHandle<'_, _>>)| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|panic| Err(Failure::panicked(rank, panic.as_ref(), true)))
            }
            Err(source) => Err(Failure { first: true, error: Error::Spawn { rank, source }.into() }),
        };
        threads.into_iter().map(join).collect()
    });
    let mut done = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(value) => done.push(value),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| !failure.first);
    failures.into_iter().next().map_or(Ok(done), |failure| Err(failure.error))
}

/// The early end of a replica.
struct Failure<E> {
    error: E,
    /// Whether it was the first, not a consequence of another's.
    first: bool,
}

impl<E: From<Error>> Failure<E> {
    fn panicked(rank: usize, panic: &(dyn Any + Send), first: bool) -> Self {
        Failure { error: Error::Panicked { rank, message: message(panic) }.into(), first }
    }
}

/// Runs one body, and tells the others how it ended.
fn run_one<M, T, E, F>(member: M, participant: &Participant, mark: &Mark, body: &F) -> Result<T, Failure<E>>
where
    E: From<Error> + core::fmt::Display,
    F: Fn(M) -> Result<T, E>,
{
    let stop = |how: String| {
        let first = participant.abort(&how);
        mark.end(Some(format!("{} {how}", participant.who)));
        first
    };
    match catch_unwind(AssertUnwindSafe(|| body(member))) {
        Ok(Ok(done)) => {
            participant.leave();
            mark.end(None);
            Ok(done)
        }
        Ok(Err(error)) => Err(Failure { first: stop(format!("failed: {error}")), error }),
        Err(panic) => {
            let first = stop(format!("panicked: {}", message(panic.as_ref())));
            Err(Failure::panicked(participant.replica, panic.as_ref(), first))
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
