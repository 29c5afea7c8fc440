//! The connections of a simulation, as TCP has them: bytes arrive late but in order, and what is lost is sent
//! again.

use crate::random::Random;
use crate::world::{Event as WorldEvent, World, wait, with};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Error, ErrorKind, Result};

/// What happens in the network.
pub(crate) enum Event {
    /// The next segment that this end has sent arrives.
    Arrive { end: usize },
    /// A request for a connection arrives.
    Request { from: usize, host: usize, port: u16, attempt: usize },
    /// Its answer arrives.
    Answer { attempt: usize, end: Option<usize> },
}

enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One end of a connection. That of the connecting process has an even number, the other the next one.
#[derive(Default)]
pub(crate) struct End {
    process: usize,
    host: usize,
    port: u16,
    /// The handles of the process.
    handles: usize,
    arrived: VecDeque<u8>,
    /// Segments on their way to the other end.
    sent: VecDeque<Segment>,
    /// When the last of them arrives.
    last: Duration,
    /// The other side has ended the connection.
    is_ended: bool,
    is_reset: bool,
    is_shut: bool,
    is_closed: bool,
    pub(crate) nonblocking: bool,
    pub(crate) timeout: Option<Duration>,
    /// The first bytes that were sent.
    record: Vec<u8>,
}

struct Listener {
    process: usize,
    waiting: VecDeque<usize>,
}

/// No segment passes between this machine and all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) host: usize,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

pub(crate) struct Network {
    /// The delay of most segments is between this and twice this, in milliseconds.
    pub(crate) delay: u64,
    /// One segment of so many is lost.
    pub(crate) loss: usize,
    pub(crate) cuts: Vec<Cut>,
    /// The machines without power.
    off: Vec<usize>,
    ends: Vec<End>,
    listeners: BTreeMap<(usize, u16), Listener>,
    /// The requests for connections, with their answers.
    attempts: Vec<Option<Option<usize>>>,
}

impl Network {
    pub(crate) fn new(delay: u64, loss: usize, cuts: Vec<Cut>) -> Network {
        let (off, ends, attempts, listeners) = Default::default();
        Network { delay, loss, cuts, off, ends, listeners, attempts }
    }

    /// The time until a segment arrives. A lost one is sent again after 200 ms, then after twice that.
    fn delay(&self, random: &mut Random) -> Duration {
        let mut delay = random.millis(self.delay, 2 * self.delay);
        let mut again = Duration::from_millis(200);
        while random.one_in(self.loss) && again < Duration::from_secs(1) {
            delay += again;
            again *= 2;
        }
        delay
    }

    /// The end of the cut between two machines, if there is one.
    fn cut(&self, now: Duration, hosts: [usize; 2]) -> Option<Duration> {
        let between = |cut: &&Cut| hosts[0] != hosts[1] && hosts.contains(&cut.host);
        let present = self.cuts.iter().filter(between).filter(|cut| cut.from <= now && now < cut.until);
        present.map(|cut| cut.until).max()
    }

    /// Whether all machines reach each other.
    pub(crate) fn is_whole(&self, now: Duration) -> bool {
        self.cuts.iter().all(|cut| now < cut.from || cut.until <= now)
    }

    pub(crate) fn set_power(&mut self, host: usize, on: bool) {
        self.off.retain(|off| *off != host);
        if !on {
            self.off.push(host);
        }
    }

    pub(crate) fn end(&mut self, end: usize) -> &mut End {
        &mut self.ends[end]
    }

    /// The machine at the other end, and its port.
    pub(crate) fn peer(&self, end: usize) -> (usize, u16) {
        (self.ends[end ^ 1].host, self.ends[end ^ 1].port)
    }

    /// The first bytes that connecting processes have sent.
    pub(crate) fn records(&self) -> Vec<Vec<u8>> {
        self.ends
            .iter()
            .step_by(2)
            .map(|end| end.record.clone())
            .filter(|record| !record.is_empty())
            .collect()
    }
}

/// What a thread that waits for an end is woken by.
fn key(end: usize) -> usize {
    usize::MAX - end
}

fn attempt_key(attempt: usize) -> usize {
    usize::MAX / 4 * 3 + attempt
}

fn at(world: &mut World, time: Duration, event: Event) {
    world.at(time, WorldEvent::Network(event));
}

fn send(world: &mut World, end: usize, segment: Segment) {
    let delay = world.network.delay(&mut world.random);
    let own = &mut world.network.ends[end];
    own.sent.push_back(segment);
    own.last = own.last.max(world.now + delay);
    let last = own.last;
    at(world, last, Event::Arrive { end });
}

pub(crate) fn happen(world: &mut World, event: Event) {
    match event {
        Event::Arrive { end } => arrive(world, end),
        Event::Request { from, host, port, attempt } => {
            let source = world.processes[from].host;
            if world.network.off.contains(&host) || world.network.off.contains(&source) {
                return;
            }
            if let Some(until) = world.network.cut(world.now, [source, host]) {
                let again = until.saturating_add(world.random.millis(0, 1000));
                return at(world, again, Event::Request { from, host, port, attempt });
            }
            let number = world.network.ends.len();
            let end = world.network.listeners.get_mut(&(host, port)).map(|listener| {
                listener.waiting.push_back(number + 1);
                let process = listener.process;
                let end = |process, host, port| End { process, host, port, handles: 1, ..End::default() };
                world.network.ends.push(end(from, source, 50_000));
                world.network.ends.push(end(process, host, port));
                number
            });
            let delay = world.network.delay(&mut world.random);
            let now = world.now;
            at(world, now + delay, Event::Answer { attempt, end });
        }
        Event::Answer { attempt, end } => {
            let given_up = world.network.attempts[attempt].is_some();
            world.network.attempts[attempt].get_or_insert(end);
            world.wake(attempt_key(attempt));
            match end {
                Some(end) if given_up || !world.processes[world.network.ends[end].process].alive => {
                    close(world, end);
                }
                _ => {}
            }
        }
    }
}

fn arrive(world: &mut World, end: usize) {
    let hosts = [world.network.ends[end].host, world.network.ends[end ^ 1].host];
    if world.network.off.contains(&hosts[1]) {
        world.network.ends[end].sent.pop_front();
        return;
    }
    if let Some(until) = world.network.cut(world.now, hosts) {
        let again = until.saturating_add(world.random.millis(0, 1000));
        return at(world, again, Event::Arrive { end });
    }
    let Some(segment) = world.network.ends[end].sent.pop_front() else { return };
    let there = &mut world.network.ends[end ^ 1];
    match segment {
        Segment::Bytes(_) if there.is_closed => send(world, end ^ 1, Segment::Reset),
        Segment::Bytes(bytes) => there.arrived.extend(bytes),
        Segment::End => there.is_ended = true,
        Segment::Reset => there.is_reset = true,
    }
    world.wake(key(end ^ 1));
}

/// The last handle is closed. Bytes that were not read reset the connection: then nothing is sent again that
/// was lost.
fn close(world: &mut World, end: usize) {
    let is_lost = world.random.one_in(world.network.loss);
    let own = &mut world.network.ends[end];
    if std::mem::replace(&mut own.is_closed, true) {
        return;
    }
    let segment = if own.arrived.is_empty() { Segment::End } else { Segment::Reset };
    if matches!(segment, Segment::Reset) && is_lost {
        own.sent.clear();
    }
    if !own.is_shut || matches!(segment, Segment::Reset) {
        send(world, end, segment);
    }
}

/// Closes everything of a process, or forgets it without a word.
pub(crate) fn end_of(world: &mut World, process: usize, closes: bool) {
    let own = |end: &usize| world.network.ends[*end].process == process;
    let ends: Vec<usize> = (0..world.network.ends.len()).filter(own).collect();
    world.network.listeners.retain(|_, listener| listener.process != process);
    for end in ends {
        match closes {
            true => close(world, end),
            false => world.network.ends[end].is_closed = true,
        }
    }
}

pub(crate) fn listen(port: u16) -> Result<(usize, u16)> {
    with(|world| {
        let process = world.process();
        let place = (world.processes[process].host, port);
        if world.network.listeners.contains_key(&place) {
            return Err(ErrorKind::AddrInUse.into());
        }
        world.network.listeners.insert(place, Listener { process, waiting: VecDeque::new() });
        Ok(place)
    })
}

/// Resets connections that were not accepted.
pub(crate) fn close_listener(place: (usize, u16)) {
    with(|world| {
        let own = world.network.listeners.get(&place).is_some_and(|own| own.process == world.process());
        let listener = if own { world.network.listeners.remove(&place) } else { None };
        for end in listener.into_iter().flat_map(|listener| listener.waiting) {
            close(world, end);
        }
    });
}

pub(crate) fn accept(place: (usize, u16)) -> Result<usize> {
    let accepted = with(|world| world.network.listeners.get_mut(&place)?.waiting.pop_front());
    accepted.ok_or(ErrorKind::WouldBlock.into())
}

pub(crate) fn connect(host: usize, port: u16, timeout: Duration) -> Result<usize> {
    let (attempt, until) = with(|world| {
        let attempt = world.network.attempts.len();
        world.network.attempts.push(None);
        let delay = world.network.delay(&mut world.random);
        let (from, now) = (world.process(), world.now);
        at(world, now + delay, Event::Request { from, host, port, attempt });
        (attempt, now + timeout)
    });
    loop {
        let answer = with(|world| {
            if world.now >= until {
                // A later answer is refused.
                world.network.attempts[attempt].get_or_insert(None);
            }
            (world.network.attempts[attempt], world.now >= until)
        });
        match answer {
            (Some(Some(end)), _) => return Ok(end),
            (Some(None), false) => return Err(ErrorKind::ConnectionRefused.into()),
            (_, true) => return Err(ErrorKind::TimedOut.into()),
            (None, false) => wait(attempt_key(attempt), Some(until)),
        }
    }
}

/// Reads what has arrived, or only looks.
pub(crate) fn read(end: usize, bytes: &mut [u8], takes: bool) -> Result<usize> {
    crate::world::may_switch();
    let until = with(|world| world.network.ends[end].timeout.map(|timeout| world.now + timeout));
    loop {
        let read = with(|world| {
            let own = &mut world.network.ends[end];
            let late = own.nonblocking || until.is_some_and(|until| world.now >= until);
            if own.is_shut {
                return Some(Ok(0));
            }
            if !own.arrived.is_empty() {
                let most = bytes.len().min(own.arrived.len());
                // Now and then less than there is.
                let few = world.random.one_in(4);
                let count = if few && most > 0 { 1 + world.random.below(most) } else { most };
                bytes.iter_mut().zip(own.arrived.iter().take(count)).for_each(|(to, from)| *to = *from);
                if takes {
                    own.arrived.drain(..count);
                }
                return Some(Ok(count));
            }
            if own.is_reset {
                return Some(Err(Error::from(ErrorKind::ConnectionReset)));
            }
            if own.is_ended {
                return Some(Ok(0));
            }
            late.then(|| Err(ErrorKind::WouldBlock.into()))
        });
        match read {
            Some(read) => return read,
            None => wait(key(end), until),
        }
    }
}

pub(crate) fn write(end: usize, bytes: &[u8]) -> Result<usize> {
    crate::world::may_switch();
    with(|world| {
        let few = world.random.one_in(8);
        let count = if few { 1 + world.random.below(bytes.len()) } else { bytes.len() };
        let own = &mut world.network.ends[end];
        if own.is_shut || own.is_reset || own.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if own.record.len() < 1000 {
            own.record.extend(&bytes[..count]);
        }
        send(world, end, Segment::Bytes(bytes[..count].to_vec()));
        Ok(count)
    })
}

/// Ends the connection in both directions.
pub(crate) fn shut(end: usize) {
    with(|world| {
        let own = &mut world.network.ends[end];
        if !std::mem::replace(&mut own.is_shut, true) && !own.is_closed {
            send(world, end, Segment::End);
        }
        world.wake(key(end));
    });
}

pub(crate) fn add_handle(end: usize) {
    with(|world| world.network.ends[end].handles += 1);
}

pub(crate) fn drop_handle(end: usize) {
    with(|world| {
        let own = &mut world.network.ends[end];
        own.handles -= 1;
        if own.handles == 0 {
            close(world, end);
        }
    });
}
