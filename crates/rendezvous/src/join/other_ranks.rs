use super::Secret;
use super::channel::{Channel, Peer, ReceiveError};
use super::handshake::{HandshakeError, connect_handshake};
use super::listener::Endpoint;
use super::message::{Hello, Message};
use super::secret::random;
use crate::system::{Instant, TcpStream, sleep};
use crate::{Error, Result};
use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// The time-out of one attempt to reach rank 0.
const TRY: Duration = Duration::from_secs(5);
/// Between tries.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Rank 0 answers this long after its own time-out: it names the missing ranks.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Connects to rank 0, and waits until all processes have come.
pub(super) fn join(
    endpoint: &Endpoint,
    secret: &Secret,
    own: &Hello,
    start: Duration,
    tell: fn(&str),
) -> Result<Peer> {
    let rank = own.rank;
    let failed = |sentence: String| Err(Error::Meeting(sentence));
    let mut channel = reach(endpoint, secret, rank, Instant::now() + start, tell)?;
    // The time-out of rank 0 may have begun a moment ago.
    let until = Instant::now() + start + GRACE;
    let gone = format!("rank 0 {endpoint} ended before all ranks had come");
    if channel.sender.send(&Message::Hello(own.clone()), until).is_err() {
        return failed(gone);
    }
    match channel.receiver.receive(until) {
        Ok(Message::Blob(_)) => Ok(Peer { rank: 0, host: endpoint.host.clone(), channel }),
        Ok(Message::Failed(sentence)) => failed(sentence),
        Err(ReceiveError::OtherSecret) => failed(format!(
            "rank 0 {endpoint} has another job secret than rank {rank}, or is of another job or start: TOWERS_JOB_SECRET \
             or TOWERS_JOB_SECRET_FILE must be the same in all processes"
        )),
        Err(ReceiveError::Late) => failed(format!("rank 0 {endpoint} did not answer rank {rank} in time")),
        Err(ReceiveError::Gone) => failed(gone),
        Ok(_) | Err(ReceiveError::Forged) => {
            failed(format!("the process that answered rank {rank} {endpoint} does not know the job secret"))
        }
    }
}

/// Tries until rank 0 listens. A name without an address and another program at the port are told at once. They
/// are no failures yet, since names of machines may appear with their start.
fn reach(
    endpoint: &Endpoint,
    secret: &Secret,
    rank: usize,
    until: Instant,
    tell: fn(&str),
) -> Result<Channel> {
    let (began, mut told) = (Instant::now(), String::new());
    let mut pause = PAUSES[0];
    loop {
        let tried = match connect((&endpoint.host, endpoint.port), until) {
            Ok(stream) => {
                let until = until.min(Instant::now() + 2 * TRY);
                match connect_handshake(stream, secret, rank, random()?, until) {
                    Ok(channel) => return Ok(channel),
                    Err(HandshakeError::Silent) => (false, "no answer".to_owned()),
                    Err(HandshakeError::Foreign) => {
                        (true, "something else, or another version, answers".to_owned())
                    }
                }
            }
            Err(error) => error,
        };
        let (at_once, tried) = tried;
        if at_once && tried != told {
            let left = until.saturating_duration_since(Instant::now()).as_secs();
            tell(&format!(
                "rank {rank} does not reach rank 0 {endpoint} yet ({tried}), and tries for {left} seconds"
            ));
            told.clone_from(&tried);
        }
        if Instant::now() + pause >= until {
            let waited = began.elapsed().as_secs();
            return Err(Error::Meeting(format!(
                "rank {rank} did not reach rank 0 {endpoint} within {waited} seconds: {tried}"
            )));
        }
        sleep(pause);
        pause = PAUSES[1].min(pause * 2);
    }
}

/// Tries each address of the machine once. The error comes with whether the name has no address.
fn connect((host, port): (&str, u16), until: Instant) -> Result<TcpStream, (bool, String)> {
    let none = |error: io::Error| (true, format!("{host} has no address: {error}"));
    let mut last = io::Error::other("no address answers");
    for address in (host, port).to_socket_addrs().map_err(none)? {
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), TRY);
        match TcpStream::connect_timeout(&address, left) {
            // The system may connect a port without a listener with itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {}
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err((false, last.to_string()))
}
