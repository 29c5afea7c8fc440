use super::abort::{Abortable, Participant};
use super::hangs::{Hangs, Mark};
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

/// As [`run_replicas`](crate::run_replicas) with the members of an existing group, one for each device.
///
/// # Errors
/// As there.
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
        let mut threads = Vec::new();
        for (member, participant) in members {
            let (name, replica) = (participant.who.replace(' ', "-"), participant.replica);
            let participant = Arc::new(participant);
            let (own, mark, running) = (Arc::clone(&participant), hangs.add(&participant), running.clone());
            let ends = Arc::clone(&mark);
            let run = move || {
                let _running = running;
                mark.adopt();
                let ended = catch_unwind(AssertUnwindSafe(|| body(member)));
                own.report(ended, &mark)
            };
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
            if let Err(source) = &thread {
                let how = format!("could not be started: {source}");
                participant.abort(&how);
                ends.end(Some(how));
            }
            threads.push((replica, thread));
        }
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

impl Participant {
    /// Tells the others how the body of this one ended.
    fn report<T, E>(&self, ended: std::thread::Result<Result<T, E>>, mark: &Mark) -> Result<T, Failure<E>>
    where
        E: From<Error> + core::fmt::Display,
    {
        let stop = |how: String| {
            let first = self.abort(&how);
            mark.end(Some(format!("{} {how}", self.who)));
            first
        };
        match ended {
            Ok(Ok(done)) => {
                self.leave();
                mark.end(None);
                Ok(done)
            }
            Ok(Err(error)) => Err(Failure { first: stop(format!("failed: {error}")), error }),
            Err(panic) => {
                let first = stop(format!("panicked: {}", message(panic.as_ref())));
                Err(Failure::panicked(self.replica, panic.as_ref(), first))
            }
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
