use super::Secret;
use super::channel::Channel;
use super::receive::ReceiveError;
use super::seal::Seal;
use super::secret::random;
use super::stream::Stream;
use std::time::Instant;

/// The protocol and its version.
const MAGIC: &[u8; 8] = b"towers-1";
const NONCE: usize = 32;

/// Why there is no connection.
pub(super) enum HandshakeError {
    /// No answer, or none in time.
    Silent,
    /// Another program, or another version of towers, answers.
    Foreign,
    /// The system has no random numbers.
    Failed(crate::Error),
}

impl From<ReceiveError> for HandshakeError {
    fn from(_: ReceiveError) -> Self {
        HandshakeError::Silent
    }
}

/// The side of the connecting process: sends its rank, and derives the keys.
pub(super) fn connect_handshake(
    mut stream: Stream,
    secret: &Secret,
    rank: usize,
    until: Instant,
) -> Result<Channel, HandshakeError> {
    let own = random::<NONCE>().map_err(HandshakeError::Failed)?;
    let greeting = [&MAGIC[..], &(rank as u64).to_le_bytes(), &own].concat();
    stream.write_until(&greeting, until).map_err(|_| HandshakeError::Silent)?;
    let mut answer = [0; MAGIC.len() + NONCE];
    stream.read_until(&mut answer, until)?;
    let (magic, nonce) = answer.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(HandshakeError::Foreign);
    }
    begin(stream, secret, [&own, nonce], true)
}

/// Rank 0's side. Returns the connection, and the rank that the other side claims.
pub(super) fn accept_handshake(
    mut stream: Stream,
    secret: &Secret,
    until: Instant,
) -> Result<(Channel, u64), HandshakeError> {
    let mut greeting = [0; MAGIC.len() + 8 + NONCE];
    stream.read_until(&mut greeting[..MAGIC.len()], until)?;
    if !greeting.starts_with(MAGIC) {
        return Err(HandshakeError::Foreign);
    }
    stream.read_until(&mut greeting[MAGIC.len()..], until)?;
    let (rank, nonce) = greeting[MAGIC.len()..].split_at(8);
    let own = random::<NONCE>().map_err(HandshakeError::Failed)?;
    stream.write_until(&[&MAGIC[..], &own].concat(), until).map_err(|_| HandshakeError::Silent)?;
    let rank = rank.iter().rev().fold(0, |rank, byte| rank << 8 | u64::from(*byte));
    Ok((begin(stream, secret, [nonce, &own], false)?, rank))
}

fn begin(
    stream: Stream,
    secret: &Secret,
    nonces: [&[u8]; 2],
    coming: bool,
) -> Result<Channel, HandshakeError> {
    let mut both = [0; 2 * NONCE];
    both[..NONCE].copy_from_slice(nonces[0]);
    both[NONCE..].copy_from_slice(nonces[1]);
    let seal =
        |to_first: bool| Seal::new(secret, if to_first { b"to rank 0" } else { b"from rank 0" }, &both);
    Channel::new(stream, seal(coming), seal(!coming)).map_err(|_| HandshakeError::Silent)
}
