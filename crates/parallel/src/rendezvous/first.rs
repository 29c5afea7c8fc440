use super::Secret;
use super::channel::Silence;
use super::greeting::answer;
use super::meeting::{Hello, Peer};
use super::message::Message;
use super::settings::is_loopback;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Who comes must say who it is within so long; strangers that don't are let go.
const GREETING: Duration = Duration::from_secs(10);
/// So many at a time besides those that are expected.
const STRANGERS: usize = 64;
/// Between two looks at the door.
const PAUSE: Duration = Duration::from_millis(5);
/// What is said at the end must be taken within so long.
const FAREWELL: Duration = Duration::from_secs(5);
/// A process of the last try may still hold the port for so long.
const PORT: Duration = Duration::from_secs(15);
/// So many missing ranks are named.
const NAMED: usize = 8;

/// What became of a connection.
enum Arrival {
    /// Somebody who knows the secret.
    Known(Hello, Box<Peer>),
    /// Somebody who says to be this rank, but has another secret.
    OtherSecret(u64, String),
    /// Something else.
    Nobody,
}

/// Waits for all others, hands out `blob`, and returns them by rank. If something is wrong, all who came are told.
pub(super) fn gather(
    at: (&str, u16),
    secret: Secret,
    own: Hello,
    blob: &[u8],
    start: Duration,
) -> Result<Vec<Peer>> {
    let until = Instant::now() + start;
    let listener = listen(at, until.min(Instant::now() + PORT))?;
    let mut guests = Guests { own, peers: Vec::new(), strangers: BTreeMap::new() };
    let gathered = guests.receive(&listener, secret, until);
    let sentence = gathered.err().map(|reason| match reason {
        Some(sentence) => sentence,
        None => guests.missing(at, start),
    });
    let message =
        sentence.as_ref().map_or_else(|| Message::Blob(blob.to_vec()), |s| Message::Failed(s.clone()));
    let gone = guests.tell(&message);
    match sentence.or_else(|| gone.map(|name| format!("{name} ended before all ranks had come"))) {
        Some(sentence) => Err(Error::Rendezvous(sentence)),
        None => {
            guests.peers.sort_by_key(|peer| peer.rank);
            Ok(guests.peers)
        }
    }
}

/// Those who have come.
struct Guests {
    own: Hello,
    peers: Vec<Peer>,
    /// Where those came from who say to be a rank and have another secret.
    strangers: BTreeMap<u64, String>,
}

impl Guests {
    /// Lets everybody in until all have come; the error is what is wrong with whom, or that the time is up.
    fn receive(
        &mut self,
        listener: &TcpListener,
        secret: Secret,
        until: Instant,
    ) -> Result<(), Option<String>> {
        let (arrive, arrivals) = mpsc::channel();
        let mut talking = 0;
        while self.peers.len() + 1 < self.own.world {
            if Instant::now() >= until {
                return Err(None);
            }
            while talking < self.own.world + STRANGERS {
                let Ok((stream, _)) = listener.accept() else { break };
                let (secret, arrive) = (secret.clone(), arrive.clone());
                let talk = move || {
                    // Nobody waits any more if the meeting is over.
                    let _ = arrive.send(talk(stream, &secret));
                };
                // Without a thread for it the connection is dropped, and its owner tries again.
                let spawned = std::thread::Builder::new().name("arrival".to_owned()).spawn(talk);
                talking += usize::from(spawned.is_ok());
            }
            talking -= self.admit(&arrivals)?;
        }
        Ok(())
    }

    /// Takes in who has said who it is; how many conversations that ended.
    fn admit(&mut self, arrivals: &Receiver<Arrival>) -> Result<usize, Option<String>> {
        let arrival = match arrivals.recv_timeout(PAUSE) {
            Ok(arrival) => arrival,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(0),
        };
        match arrival {
            Arrival::Known(hello, peer) => {
                let wrong = self.wrong_with(&hello, &peer);
                // Who is wrong is told, too.
                self.peers.push(*peer);
                wrong.map_or(Ok(1), |sentence| Err(Some(sentence)))
            }
            Arrival::OtherSecret(rank, host) => {
                // Anybody can say to be a rank: that is remembered, but ends nothing.
                if rank < self.own.world as u64 {
                    self.strangers.insert(rank, host);
                }
                Ok(1)
            }
            Arrival::Nobody => Ok(1),
        }
    }

    fn find(&self, rank: usize) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.rank == rank)
    }

    /// Why one who knows the secret can't take part.
    fn wrong_with(&self, hello: &Hello, peer: &Peer) -> Option<String> {
        let (name, own) = (peer.name(), &self.own);
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
        let differs = hello.config_digest != own.config_digest;
        differs.then(|| format!("{name} was started with another configuration than rank 0"))
    }

    /// Who has not come, and why if that is known.
    fn missing(&self, (host, port): (&str, u16), start: Duration) -> String {
        let missing: Vec<usize> = (1..self.own.world).filter(|rank| self.find(*rank).is_none()).collect();
        let mut names: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
        if missing.len() > NAMED {
            names.push(format!("{} more", missing.len() - NAMED));
        }
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let (names, world, seconds) = (names.join(", "), self.own.world, start.as_secs_f64());
        let sentence = format!(
            "{ranks} {names} of {world} did not come to rank 0 at {host}:{port} within {seconds} seconds"
        );
        match self.strangers.iter().find(|(rank, _)| missing.contains(&(**rank as usize))) {
            Some((rank, host)) => format!("{sentence}; rank {rank} ({host}) has another job secret"),
            None => sentence,
        }
    }

    /// Tells everybody; the name of one who is gone.
    fn tell(&mut self, message: &Message) -> Option<String> {
        let until = Instant::now() + FAREWELL;
        let unheard = self.peers.iter_mut().filter_map(|peer| {
            let failed = peer.channel.sender.send(message, until).is_err();
            failed.then(|| peer.name())
        });
        unheard.reduce(|first, _| first)
    }
}

/// Lets one in, however slowly it speaks: each has a thread.
fn talk(stream: TcpStream, secret: &Secret) -> Arrival {
    let until = Instant::now() + GREETING;
    // On some systems a connection inherits that its listener does not wait.
    let Ok(()) = stream.set_nonblocking(false) else { return Arrival::Nobody };
    let Ok((mut channel, claimed)) = answer(stream, secret, until) else { return Arrival::Nobody };
    let host = channel.host();
    match channel.receiver.receive(until) {
        Ok(Message::Hello(hello)) => {
            Arrival::Known(hello, Box::new(Peer { rank: hello.rank, host, channel }))
        }
        Err(Silence::Forged) => {
            // Who does not hear it finds out by its own time-out.
            let _ = channel.sender.refuse_secret(until);
            Arrival::OtherSecret(claimed, host)
        }
        _ => Arrival::Nobody,
    }
}

/// Listens at the port: on this machine's own address alone if that is where rank 0 is said to be, else on all.
fn listen((host, port): (&str, u16), until: Instant) -> Result<TcpListener> {
    let address = SocketAddr::new(interface(host), port);
    let failed = |error: io::Error| {
        Error::Rendezvous(format!(
            "rank 0 can't listen at {address}: {error}; TOWERS_RENDEZVOUS_PORT names another port"
        ))
    };
    loop {
        match TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(20 * PAUSE);
            }
            bound => return bound.map_err(failed),
        }
    }
}

fn interface(host: &str) -> IpAddr {
    let mut addresses = (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    let first = addresses.next();
    let v6 = first.is_some_and(|ip| ip.is_ipv6()) && !addresses.any(|ip| ip.is_ipv4());
    match (is_loopback(host), v6) {
        (true, false) => Ipv4Addr::LOCALHOST.into(),
        (true, true) => Ipv6Addr::LOCALHOST.into(),
        (false, false) => Ipv4Addr::UNSPECIFIED.into(),
        (false, true) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
