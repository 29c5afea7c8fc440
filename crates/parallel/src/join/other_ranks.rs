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
pub(super) fn join(endpoint: &Endpoint, secret: &Secret, own: &Hello, start: Duration) -> Result<Peer> {
    let rank = own.rank;
    let failed = |sentence: String| Err(Error::Rendezvous(sentence));
    let mut channel = reach(endpoint, secret, rank, Instant::now() + start)?;
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

/// Tries until rank 0 listens.
fn reach(endpoint: &Endpoint, secret: &Secret, rank: usize, until: Instant) -> Result<Channel> {
    let began = Instant::now();
    let mut pause = PAUSES[0];
    loop {
        let tried = match connect((&endpoint.host, endpoint.port), until) {
            Ok(stream) => {
                let until = until.min(Instant::now() + 2 * TRY);
                match connect_handshake(stream, secret, rank, random()?, until) {
                    Ok(channel) => return Ok(channel),
                    Err(HandshakeError::Silent) => "no answer".to_owned(),
                    Err(HandshakeError::Foreign) => "something else, or another version, answers".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        if Instant::now() + pause >= until {
            let waited = began.elapsed().as_secs();
            return Err(Error::Rendezvous(format!(
                "rank {rank} did not reach rank 0 {endpoint} within {waited} seconds: {tried}"
            )));
        }
        sleep(pause);
        pause = PAUSES[1].min(pause * 2);
    }
}

/// Tries each address of the machine once.
fn connect((host, port): (&str, u16), until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), TRY);
        match TcpStream::connect_timeout(&address, left) {
            // The system may connect a port without a listener with itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {}
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
