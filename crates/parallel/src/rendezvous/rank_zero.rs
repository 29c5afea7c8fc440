use super::Secret;
use super::endpoint::{Endpoint, Listener};
use super::handshake::accept_handshake;
use super::message::{Hello, Message};
use super::peer::Peer;
use super::receive::ReceiveError;
use super::stream::Stream;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time-out of a handshake. Connections without one are closed.
const GREETING: Duration = Duration::from_secs(10);
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

/// Waits for all others, sends them `blob`, and returns them by rank. If a process can't take part, all are
/// told.
pub(super) fn gather(
    endpoint: &Endpoint,
    secret: Secret,
    own: &Hello,
    blob: &[u8],
    start: Duration,
) -> Result<Vec<Peer>> {
    let until = Instant::now() + start;
    let mut listener = Listener::open(endpoint, until)?;
    let mut arrivals =
        Arrivals { own, peers: Vec::new(), strangers: BTreeMap::new(), ended: BTreeMap::new() };
    let gathered = arrivals.receive(&mut listener, secret, until);
    let sentence = gathered.err().map(|reason| match reason {
        Some(sentence) => sentence,
        None => arrivals.missing(endpoint, start),
    });
    let message =
        sentence.as_ref().map_or_else(|| Message::Blob(blob.to_vec()), |s| Message::Failed(s.clone()));
    let gone = arrivals.tell(&message);
    match sentence.or_else(|| gone.map(|name| format!("{name} ended before all ranks had come"))) {
        Some(sentence) => Err(Error::Rendezvous(sentence)),
        None => {
            arrivals.peers.sort_by_key(|peer| peer.rank);
            Ok(arrivals.peers)
        }
    }
}

/// The connected processes.
struct Arrivals<'a> {
    own: &'a Hello,
    peers: Vec<Peer>,
    /// The hosts of processes that claim a rank and have another secret.
    strangers: BTreeMap<u64, String>,
    /// Processes that connected, and ended while they waited.
    ended: BTreeMap<usize, String>,
}

impl Arrivals<'_> {
    /// Accepts connections until all processes have come. The error says which process is wrong, or is `None`
    /// after the time-out.
    fn receive(
        &mut self,
        listener: &mut Listener,
        secret: Secret,
        until: Instant,
    ) -> Result<(), Option<String>> {
        let (arrive, arrivals) = mpsc::channel();
        let mut talking = 0;
        while !self.is_complete() {
            if Instant::now() >= until {
                return Err(None);
            }
            while talking < self.own.world + STRANGERS {
                let Some(stream) = listener.accept() else { break };
                let (secret, arrive) = (secret.clone(), arrive.clone());
                let talk = move || {
                    // After the time-out the receiver is gone.
                    let _ = arrive.send(talk(stream, &secret));
                };
                // Without a thread the connection is dropped, and its process tries again.
                let spawned = std::thread::Builder::new().name("arrival".to_owned()).spawn(talk);
                talking += usize::from(spawned.is_ok());
            }
            talking -= self.admit(&arrivals)?;
        }
        Ok(())
    }

    /// Takes the next outcome. Returns the number of handshakes that ended.
    fn admit(&mut self, arrivals: &Receiver<Arrival>) -> Result<usize, Option<String>> {
        let arrival = match arrivals.recv_timeout(PAUSE) {
            Ok(arrival) => arrival,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(0),
        };
        match arrival {
            Arrival::Known(hello, peer) => {
                if self.find(hello.rank).is_some() {
                    // A process that ended while it waited has come back. Its first connection may still look
                    // open.
                    if peer.channel.is_closed() {
                        return Ok(1);
                    }
                    self.let_go();
                }
                let wrong = self.wrong_with(&hello, &peer);
                // The wrong process is told, too.
                self.peers.push(*peer);
                wrong.map_or(Ok(1), |sentence| Err(Some(sentence)))
            }
            Arrival::OtherSecret(rank, host) => {
                // Any process can claim a rank, so this is remembered, but ends nothing.
                if rank < self.own.world as u64 {
                    self.strangers.insert(rank, host);
                }
                Ok(1)
            }
            Arrival::Nobody => Ok(1),
        }
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
        peers.retain(|peer| {
            let closed = peer.channel.is_closed();
            if closed {
                ended.insert(peer.rank, peer.name());
            }
            !closed
        });
    }

    fn find(&self, rank: usize) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.rank == rank)
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
        if let Some(other) = self.find(hello.rank) {
            return Some(format!(
                "two processes say that they are rank {}, on {} and on {}",
                hello.rank, other.host, peer.host
            ));
        }
        own.agreement.difference(hello.rank, &hello.agreement).map(|error| error.to_string())
    }

    /// The missing ranks, and the reason if it is known.
    fn missing(&self, endpoint: &Endpoint, start: Duration) -> String {
        let missing: Vec<usize> = (1..self.own.world).filter(|rank| self.find(*rank).is_none()).collect();
        let mut names: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
        if missing.len() > NAMED {
            names.push(format!("{} more", missing.len() - NAMED));
        }
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let (names, world, seconds) = (names.join(", "), self.own.world, start.as_secs_f64());
        let sentence =
            format!("{ranks} {names} of {world} did not come to rank 0 {endpoint} within {seconds} seconds");
        if let Some((_, name)) = self.ended.iter().find(|(rank, _)| missing.contains(rank)) {
            return format!("{sentence}; {name} came, ended, and did not come back");
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
        let until = Instant::now() + FAREWELL;
        let unheard = self.peers.iter_mut().filter_map(|peer| {
            let failed = peer.channel.sender.send(message, until).is_err();
            failed.then(|| peer.name())
        });
        unheard.reduce(|first, _| first)
    }
}

/// The handshake of one connection, on its own thread.
fn talk(stream: Stream, secret: &Secret) -> Arrival {
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
