use super::Secret;
use super::channel::{Peer, ReceiveError};
use super::handshake::accept_handshake;
use super::listener::{Endpoint, Listener};
use super::message::{Hello, Message};
use crate::system::{Instant, Mutex, TcpStream, sleep, spawn};
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::net::Shutdown;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The time-out of a handshake. Connections without one are closed.
const GREETING: Duration = Duration::from_secs(10);
/// The time-out if others wait for a place among the connections that are served.
const CROWDED: Duration = Duration::from_secs(1);
/// The number of other connections that are served at a time.
const STRANGERS: usize = 64;
/// Between two looks for connections.
const PAUSE: Duration = Duration::from_millis(5);
/// The others must take the last message within this time.
const FAREWELL: Duration = Duration::from_secs(5);
/// The most missing ranks that a message names.
const NAMED: usize = 8;

/// The outcome of a connection.
enum Arrival {
    /// A process that knows the secret.
    Known(Hello, Box<Peer>),
    /// A process that claims this rank, but has another secret.
    OtherSecret(u64, String),
    /// Something else.
    Nobody,
}

/// Waits for all others, and returns them by rank. All are told that it is complete, or why a process can't take
/// part.
pub(super) fn gather(
    endpoint: &Endpoint,
    secret: Secret,
    own: &Hello,
    start: Duration,
    tell: fn(&str),
) -> Result<Vec<Peer>> {
    let until = Instant::now() + start;
    let mut listener = Listener::open(endpoint, until, tell)?;
    let mut arrivals =
        Arrivals { own, peers: BTreeMap::new(), strangers: BTreeMap::new(), ended: BTreeMap::new() };
    let gathered = arrivals.receive(&mut listener, &secret, until);
    let wrong = gathered.err().map(|reason| reason.unwrap_or_else(|| arrivals.missing(endpoint, start)));
    let message = wrong.clone().map_or(Message::Blob(Vec::new()), Message::Failed);
    let gone = arrivals.tell(&message);
    match wrong.or_else(|| gone.map(|name| format!("{name} ended before all ranks had come"))) {
        Some(sentence) => Err(Error::Meeting(sentence)),
        None => Ok(arrivals.peers.into_values().map(|(_, peer)| peer).collect()),
    }
}

/// The connected processes.
struct Arrivals<'a> {
    own: &'a Hello,
    /// By rank, each with the number of its connection.
    peers: BTreeMap<usize, (u64, Peer)>,
    /// The hosts of processes that claim a rank and have another secret.
    strangers: BTreeMap<u64, String>,
    /// Processes that connected and ended while they waited, or gave way to another one with their rank: a
    /// sentence about each.
    ended: BTreeMap<usize, String>,
}

impl Arrivals<'_> {
    /// Accepts connections until all processes have come. The error says which process is wrong, or is `None`
    /// after the time-out.
    fn receive(
        &mut self,
        listener: &mut Listener,
        secret: &Secret,
        until: Instant,
    ) -> Result<(), Option<String>> {
        let most = self.own.world + STRANGERS;
        let mut greeting = Greeting { running: VecDeque::new(), begun: 0, most };
        while !self.is_complete() {
            if Instant::now() >= until {
                return Err(None);
            }
            greeting.accept(listener, secret);
            for (number, arrival) in greeting.arrived() {
                self.admit(number, arrival)?;
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Takes the outcome of a connection.
    fn admit(&mut self, number: u64, arrival: Arrival) -> Result<(), Option<String>> {
        match arrival {
            Arrival::Known(hello, mut peer) => {
                let wrong = self.wrong_with(&hello, &peer);
                if let Some(sentence) = wrong {
                    let _ = peer.channel.sender.send(&Message::Failed(sentence.clone()), soon());
                    return Err(Some(sentence));
                }
                self.enter(number, *peer);
            }
            // Any process can claim a rank, so this is remembered, but ends nothing.
            Arrival::OtherSecret(rank, host) if rank < self.own.world as u64 => {
                self.strangers.insert(rank, host);
            }
            Arrival::OtherSecret(..) | Arrival::Nobody => {}
        }
        Ok(())
    }

    /// Adds a process. Of two with one rank the one that connected last takes part, whichever was heard first:
    /// the other may have ended, be of a machine that lost power, or be left from an earlier start.
    fn enter(&mut self, number: u64, peer: Peer) {
        let rank = peer.rank;
        self.ended.remove(&rank);
        let Some((present, other)) = self.peers.remove(&rank) else {
            self.peers.insert(rank, (number, peer));
            return;
        };
        let (newer, mut earlier) =
            if number > present { ((number, peer), other) } else { ((present, other), peer) };
        let host = newer.1.host.clone();
        self.peers.insert(rank, newer);
        if earlier.channel.is_closed() {
            return;
        }
        let told =
            format!("a later process came as rank {rank}, from {host}, and takes part in place of this one");
        let _ = earlier.channel.sender.send(&Message::Failed(told), soon());
        earlier.channel.sender.close();
        let sentence = format!("two processes came as rank {rank}, from {} and from {host}", earlier.host);
        self.ended.insert(rank, sentence);
    }

    /// Whether all processes have come and are still connected.
    fn is_complete(&mut self) -> bool {
        if self.peers.len() + 1 == self.own.world {
            self.let_go();
        }
        self.peers.len() + 1 >= self.own.world
    }

    /// Forgets processes that have ended while they waited. They may come back.
    fn let_go(&mut self) {
        let Arrivals { peers, ended, .. } = self;
        peers.retain(|_, (_, peer)| {
            let closed = peer.channel.is_closed();
            if closed {
                ended.insert(peer.rank, format!("{} came, ended, and did not come back", peer.name()));
            }
            !closed
        });
    }

    /// Why a process that knows the secret can't take part.
    fn wrong_with(&self, hello: &Hello, peer: &Peer) -> Option<String> {
        let (name, own) = (peer.name(), self.own);
        if hello.world != own.world {
            return Some(format!(
                "{name} was started as one of {} processes, but rank 0 as one of {}",
                hello.world, own.world
            ));
        }
        if hello.rank == 0 || hello.rank >= own.world {
            return Some(format!(
                "a process on {} says that it is rank {} of {}",
                peer.host, hello.rank, own.world
            ));
        }
        own.agreement.difference(hello.rank, &hello.agreement).map(|error| error.to_string())
    }

    /// The missing ranks, and the reason if it is known.
    fn missing(&self, endpoint: &Endpoint, start: Duration) -> String {
        let missing: Vec<usize> = (1..self.own.world).filter(|rank| !self.peers.contains_key(rank)).collect();
        let mut names: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
        if missing.len() > NAMED {
            names.push(format!("{} more", missing.len() - NAMED));
        }
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let (names, world, seconds) = (names.join(", "), self.own.world, start.as_secs_f64());
        let sentence =
            format!("{ranks} {names} of {world} did not come to rank 0 {endpoint} within {seconds} seconds");
        // A rank that came twice may be one that is missing, by a wrong number.
        let about = self.ended.iter().find(|(rank, _)| missing.contains(rank)).or(self.ended.iter().next());
        if let Some((_, about)) = about {
            return format!("{sentence}; {about}");
        }
        match self.strangers.iter().find(|(rank, _)| missing.contains(&(**rank as usize))) {
            Some((rank, host)) => format!(
                "{sentence}; rank {rank} ({host}) has another job secret, or is of another job or start"
            ),
            None => sentence,
        }
    }

    /// Sends a message to all. Returns the name of a lost process.
    fn tell(&mut self, message: &Message) -> Option<String> {
        let until = soon();
        let unheard = self.peers.values_mut().filter_map(|(_, peer)| {
            let failed = peer.channel.sender.send(message, until).is_err();
            failed.then(|| peer.name())
        });
        unheard.reduce(|first, _| first)
    }
}

/// The time at which a process must have taken its last message.
fn soon() -> Instant {
    Instant::now() + FAREWELL
}

/// The connections whose handshake runs, each on its own thread.
struct Greeting {
    /// The oldest first.
    running: VecDeque<Running>,
    /// The number of connections so far.
    begun: u64,
    /// The most at a time.
    most: usize,
}

/// A connection whose handshake runs.
struct Running {
    number: u64,
    since: Instant,
    stream: TcpStream,
    /// Set at the end.
    outcome: Arc<Mutex<Option<Arrival>>>,
}

impl Greeting {
    /// Takes the connections that have come. Strangers that say nothing give way to new connections.
    fn accept(&mut self, listener: &mut Listener, secret: &Secret) {
        loop {
            if self.running.len() >= self.most {
                let Some(oldest) = self.running.front() else { return };
                if oldest.since.elapsed() < CROWDED {
                    return;
                }
                let _ = oldest.stream.shutdown(Shutdown::Both);
                self.running.pop_front();
            }
            let Some(stream) = listener.accept() else { return };
            let Ok(handle) = stream.try_clone() else { continue };
            self.begun += 1;
            let outcome = Arc::<Mutex<Option<Arrival>>>::default();
            let (number, since) = (self.begun, Instant::now());
            let (secret, arrival) = (secret.clone(), Arc::clone(&outcome));
            let greet = move || {
                let greeted = greet(stream, &secret);
                *arrival.lock().unwrap_or_else(PoisonError::into_inner) = Some(greeted);
            };
            // Without a thread the connection is dropped, and its process tries again.
            if spawn("arrival", greet).is_ok() {
                self.running.push_back(Running { number, since, stream: handle, outcome });
            }
        }
    }

    /// The outcomes of handshakes that have ended, each with the number of its connection.
    fn arrived(&mut self) -> Vec<(u64, Arrival)> {
        let mut arrived = Vec::new();
        self.running.retain(|running| {
            let outcome = running.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
            let runs = outcome.is_none();
            arrived.extend(outcome.map(|outcome| (running.number, outcome)));
            runs
        });
        arrived
    }
}

/// The handshake of one connection.
fn greet(stream: TcpStream, secret: &Secret) -> Arrival {
    let until = Instant::now() + GREETING;
    let Ok((mut channel, claimed)) = accept_handshake(stream, secret, until) else { return Arrival::Nobody };
    let host = channel.host();
    match channel.receiver.receive(until) {
        Ok(Message::Hello(hello)) => {
            let peer = Peer { rank: hello.rank, host, channel };
            Arrival::Known(hello, Box::new(peer))
        }
        Err(ReceiveError::Forged) => {
            // A process that misses this message finds out by its time-out.
            let _ = channel.sender.refuse_secret(until);
            Arrival::OtherSecret(claimed, host)
        }
        _ => Arrival::Nobody,
    }
}
