//! Messages over TCP, each with an authentication code.

use super::Secret;
use super::message::Message;
use super::secret::mac;
use crate::system::{Instant, TcpStream};
use hmac::Mac;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// The longest message. Longer ones are refused before they are read.
pub(super) const LONGEST: usize = 1 << 20;
/// In place of a length: "you have another secret". Not authenticated, since there is no common key.
const OTHER_SECRET: u32 = u32::MAX;
/// The length of the authentication code after every message.
const TAG: usize = 32;

/// Why nothing came.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The time is up.
    Late,
    /// The other side or the network has closed the connection.
    Gone,
    /// The other side says that it has another secret.
    OtherSecret,
    /// The message is not authentic.
    Forged,
}

/// Another process.
pub(super) struct Peer {
    pub(super) rank: usize,
    pub(super) host: String,
    pub(super) channel: Channel,
}

impl Peer {
    /// The process in a message.
    pub(super) fn name(&self) -> String {
        format!("rank {} ({})", self.rank, self.host)
    }
}

/// Both directions of a connection.
pub(super) struct Channel {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
}

/// The sending half.
pub(super) struct Sender {
    stream: TcpStream,
    codes: Codes,
}

/// The receiving half.
pub(super) struct Receiver {
    stream: TcpStream,
    codes: Codes,
}

impl Channel {
    pub(super) fn new(stream: TcpStream, out: Codes, back: Codes) -> io::Result<Channel> {
        // Small messages leave at once.
        stream.set_nodelay(true)?;
        let receiver = Receiver { stream: stream.try_clone()?, codes: back };
        Ok(Channel { sender: Sender { stream, codes: out }, receiver })
    }

    /// The address of the other side's machine.
    pub(super) fn host(&self) -> String {
        let address = self.receiver.stream.peer_addr();
        address.map_or("unknown".into(), |address| address.ip().to_canonical().to_string())
    }

    /// Whether the other side has closed the connection, and all its messages are read.
    pub(super) fn is_closed(&self) -> bool {
        self.peek().map_or_else(|error| !passes(&error), |count| count == 0)
    }

    /// Whether a message has begun to arrive, or the connection has ended.
    pub(super) fn is_ready(&self) -> bool {
        self.peek().map_or_else(|error| !passes(&error), |_| true)
    }

    /// Looks for bytes without a wait. No other thread may be reading.
    fn peek(&self) -> io::Result<usize> {
        let stream = &self.receiver.stream;
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        peeked
    }
}

impl Sender {
    /// Sends a message. The other side must take it before `until`.
    pub(super) fn send(&mut self, message: &Message, until: Instant) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let code = self.codes.next(&body).finalize().into_bytes();
        let length = (body.len() as u32).to_le_bytes();
        write_until(&self.stream, &[&length[..], &body, &code].concat(), until)
    }

    /// Says that the other side has another secret.
    pub(super) fn refuse_secret(&mut self, until: Instant) -> io::Result<()> {
        write_until(&self.stream, &OTHER_SECRET.to_le_bytes(), until)
    }

    /// Closes the connection, for both halves.
    pub(super) fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message, if it comes before `until`.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Message, ReceiveError> {
        let mut length = [0; 4];
        read_until(&self.stream, &mut length, until)?;
        let length = match u32::from_le_bytes(length) {
            OTHER_SECRET => return Err(ReceiveError::OtherSecret),
            length => length as usize,
        };
        if length > LONGEST {
            return Err(ReceiveError::Forged);
        }
        let (mut body, mut code) = (vec![0; length], [0; TAG]);
        read_until(&self.stream, &mut body, until)?;
        read_until(&self.stream, &mut code, until)?;
        let genuine = self.codes.next(&body).verify_slice(&code).is_ok();
        genuine.then(|| serde_json::from_slice(&body).ok()).flatten().ok_or(ReceiveError::Forged)
    }
}

/// The authentication codes of one direction of a connection.
///
/// The key is an HMAC of the direction and both sides' nonces under the secret, and a code covers the
/// message's number. So a message can't be replayed: neither in another connection or direction, nor later.
pub(super) struct Codes {
    key: [u8; 32],
    number: u64,
}

impl Codes {
    pub(super) fn new(secret: &Secret, direction: &[u8], nonces: &[u8; 64]) -> Codes {
        Codes { key: secret.authenticate(&[b"towers 3 ", direction, nonces]), number: 0 }
    }

    /// The code of the next message.
    fn next(&mut self, message: &[u8]) -> hmac::Hmac<sha2::Sha256> {
        let number = self.number.to_le_bytes();
        self.number += 1;
        mac(&self.key, &[&number, message])
    }
}

/// Fills `bytes` before `until`, however slowly they arrive.
pub(super) fn read_until(
    mut stream: &TcpStream,
    mut bytes: &mut [u8],
    until: Instant,
) -> Result<(), ReceiveError> {
    while !bytes.is_empty() {
        let left = left(until).ok_or(ReceiveError::Late)?;
        stream.set_read_timeout(Some(left)).map_err(|_| ReceiveError::Gone)?;
        match stream.read(bytes) {
            Ok(0) => return Err(ReceiveError::Gone),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if passes(&error) => {}
            Err(_) => return Err(ReceiveError::Gone),
        }
    }
    Ok(())
}

pub(super) fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until).ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until then, if any: the system refuses a time-out of zero.
fn left(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// Whether to retry: a time-out or a signal.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(secret: &str, direction: &[u8]) -> Codes {
        Codes::new(&Secret::new(secret).unwrap(), direction, &[5; 64])
    }

    #[test]
    fn only_the_same_secret_direction_and_number_have_the_same_code() {
        let text = b"a message";
        let code = codes("0123456789abcdef", b"there").next(text).finalize().into_bytes();
        let fits = |mut codes: Codes, text: &[u8]| codes.next(text).verify_slice(&code).is_ok();
        assert!(fits(codes("0123456789abcdef", b"there"), text));
        assert!(!fits(codes("0123456789abcdeF", b"there"), text));
        assert!(!fits(codes("0123456789abcdef", b"back"), text));
        let mut later = codes("0123456789abcdef", b"there");
        later.next(b"");
        assert!(!fits(later, text), "a message is replayed");
        for bit in 0..text.len() * 8 {
            let mut damaged = *text;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!fits(codes("0123456789abcdef", b"there"), &damaged));
        }
    }
}
