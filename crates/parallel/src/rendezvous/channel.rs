use super::message::Message;
use super::seal::{Seal, TAG};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The longest message; more is refused before it is read.
pub(super) const LONGEST: usize = 64 << 10;
/// In place of a length: "your secret is another one". Not authenticated, since there is nothing to do so with.
const OTHER_SECRET: u32 = u32::MAX;

/// Why nothing came.
#[derive(Debug)]
pub(super) enum Silence {
    /// The time is up.
    Late,
    /// The other side has closed the connection, or the network has.
    Gone,
    /// The other side has another secret, and says so.
    OtherSecret,
    /// Somebody else than those who know the secret speaks.
    Forged,
}

/// Both directions of a conversation.
pub(super) struct Channel {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
}

/// Tells the other side something.
pub(super) struct Sender {
    stream: TcpStream,
    seal: Seal,
}

/// Hears the other side.
pub(super) struct Receiver {
    stream: TcpStream,
    seal: Seal,
}

impl Channel {
    pub(super) fn new(stream: TcpStream, out: Seal, back: Seal) -> io::Result<Channel> {
        stream.set_nodelay(true)?;
        let receiver = Receiver { stream: stream.try_clone()?, seal: back };
        Ok(Channel { sender: Sender { stream, seal: out }, receiver })
    }

    /// The address of the other side's machine.
    pub(super) fn host(&self) -> String {
        self.receiver
            .stream
            .peer_addr()
            .map_or("unknown".to_owned(), |address| address.ip().to_canonical().to_string())
    }
}

impl Sender {
    /// Sends a message; the other side must take it before `until`.
    pub(super) fn send(&mut self, message: &Message, until: Instant) -> io::Result<()> {
        let mut body = message.to_bytes();
        let code = self.seal.close(&mut body);
        let length = (body.len() as u32).to_le_bytes();
        write_until(&self.stream, &[&length[..], &body, &code].concat(), until)
    }

    /// Says that the other side has another secret.
    pub(super) fn refuse_secret(&mut self, until: Instant) -> io::Result<()> {
        write_until(&self.stream, &OTHER_SECRET.to_le_bytes(), until)
    }

    /// Ends the conversation, also for who is waiting on its other half.
    pub(super) fn close(&self) {
        // That it is closed already is what is wanted.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message, if it comes before `until`.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Message, Silence> {
        let mut length = [0; 4];
        read_until(&self.stream, &mut length, until)?;
        let length = match u32::from_le_bytes(length) {
            OTHER_SECRET => return Err(Silence::OtherSecret),
            length => length as usize,
        };
        if length > LONGEST {
            return Err(Silence::Forged);
        }
        let (mut body, mut code) = (vec![0; length], [0; TAG]);
        read_until(&self.stream, &mut body, until)?;
        read_until(&self.stream, &mut code, until)?;
        let genuine = self.seal.open(&mut body, &code);
        genuine.then(|| Message::from_bytes(&body)).flatten().ok_or(Silence::Forged)
    }
}

/// Fills `bytes` from the stream, however slowly they drip, before `until`.
pub(super) fn read_until(
    mut stream: &TcpStream,
    mut bytes: &mut [u8],
    until: Instant,
) -> Result<(), Silence> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(until)?)).map_err(|_| Silence::Gone)?;
        match stream.read(bytes) {
            Ok(0) => return Err(Silence::Gone),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if passes(&error) => {}
            Err(_) => return Err(Silence::Gone),
        }
    }
    Ok(())
}

pub(super) fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = left(until).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(until: Instant) -> Result<Duration, Silence> {
    let left = until.saturating_duration_since(Instant::now());
    // A time-out of zero is refused by the system.
    if left.is_zero() { Err(Silence::Late) } else { Ok(left) }
}

/// Whether it is worth another look at the clock: a time-out or a signal.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
