use super::message::Message;
use super::receive::ReceiveError;
use super::seal::{Seal, TAG};
use super::stream::Stream;
use std::io;
use std::time::Instant;

/// The longest message. Longer ones are refused before they are read.
pub(super) const LONGEST: usize = 64 << 10;
/// In place of a length: "you have another secret". Not authenticated, since there is no common key.
const OTHER_SECRET: u32 = u32::MAX;

/// Both directions of a connection.
pub(super) struct Channel {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
}

/// The sending half.
pub(super) struct Sender {
    stream: Stream,
    seal: Seal,
}

/// The receiving half.
pub(super) struct Receiver {
    stream: Stream,
    seal: Seal,
}

impl Channel {
    pub(super) fn new(stream: Stream, out: Seal, back: Seal) -> io::Result<Channel> {
        stream.set_nodelay()?;
        let receiver = Receiver { stream: stream.try_clone()?, seal: back };
        Ok(Channel { sender: Sender { stream, seal: out }, receiver })
    }

    /// The address of the other side's machine.
    pub(super) fn host(&self) -> String {
        self.receiver.stream.host()
    }

    /// Whether the other side has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.receiver.stream.is_closed()
    }
}

impl Sender {
    /// Sends a message. The other side must take it before `until`.
    pub(super) fn send(&mut self, message: &Message, until: Instant) -> io::Result<()> {
        let mut body = message.to_bytes();
        let code = self.seal.close(&mut body);
        let length = (body.len() as u32).to_le_bytes();
        self.stream.write_until(&[&length[..], &body, &code].concat(), until)
    }

    /// Says that the other side has another secret.
    pub(super) fn refuse_secret(&mut self, until: Instant) -> io::Result<()> {
        self.stream.write_until(&OTHER_SECRET.to_le_bytes(), until)
    }

    /// Closes the connection, for both halves.
    pub(super) fn close(&self) {
        self.stream.close();
    }
}

impl Receiver {
    /// The next message, if it comes before `until`.
    pub(super) fn receive(&mut self, until: Instant) -> Result<Message, ReceiveError> {
        let mut length = [0; 4];
        self.stream.read_until(&mut length, until)?;
        let length = match u32::from_le_bytes(length) {
            OTHER_SECRET => return Err(ReceiveError::OtherSecret),
            length => length as usize,
        };
        if length > LONGEST {
            return Err(ReceiveError::Forged);
        }
        let (mut body, mut code) = (vec![0; length], [0; TAG]);
        self.stream.read_until(&mut body, until)?;
        self.stream.read_until(&mut code, until)?;
        let genuine = self.seal.open(&mut body, &code);
        genuine.then(|| Message::from_bytes(&body)).flatten().ok_or(ReceiveError::Forged)
    }
}
