use super::Secret;
use super::channel::{Channel, Codes, ReceiveError, read_until, write_until};
use super::secret::random;
use crate::system::{Instant, TcpStream};

/// The protocol and its version.
const MAGIC: &[u8; 8] = b"towers-3";
/// The length of the random numbers that both sides draw for a connection.
pub(super) const NONCE: usize = 32;

/// Why there is no connection.
pub(super) enum HandshakeError {
    /// No answer, or none in time.
    Silent,
    /// Another program, or another version of towers, answers.
    Foreign,
}

impl From<ReceiveError> for HandshakeError {
    fn from(_: ReceiveError) -> Self {
        HandshakeError::Silent
    }
}

/// The side of the connecting process, with a new random number: sends its rank, and derives the keys.
pub(super) fn connect_handshake(
    stream: TcpStream,
    secret: &Secret,
    rank: usize,
    own: [u8; NONCE],
    until: Instant,
) -> Result<Channel, HandshakeError> {
    let greeting = [&MAGIC[..], &(rank as u64).to_le_bytes(), &own].concat();
    write_until(&stream, &greeting, until).map_err(|_| HandshakeError::Silent)?;
    let mut answer = [0; MAGIC.len() + NONCE];
    read_until(&stream, &mut answer, until)?;
    let (magic, nonce) = answer.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(HandshakeError::Foreign);
    }
    begin(stream, secret, [&own, nonce], true)
}

/// Rank 0's side. Returns the connection, and the rank that the other side claims.
pub(super) fn accept_handshake(
    stream: TcpStream,
    secret: &Secret,
    until: Instant,
) -> Result<(Channel, u64), HandshakeError> {
    let mut greeting = [0; MAGIC.len() + 8 + NONCE];
    read_until(&stream, &mut greeting[..MAGIC.len()], until)?;
    if !greeting.starts_with(MAGIC) {
        return Err(HandshakeError::Foreign);
    }
    read_until(&stream, &mut greeting[MAGIC.len()..], until)?;
    let (rank, nonce) = greeting[MAGIC.len()..].split_at(8);
    let own: [u8; NONCE] = random().map_err(|_| HandshakeError::Silent)?;
    write_until(&stream, &[&MAGIC[..], &own].concat(), until).map_err(|_| HandshakeError::Silent)?;
    let rank = rank.iter().rev().fold(0, |rank, byte| rank << 8 | u64::from(*byte));
    Ok((begin(stream, secret, [nonce, &own], false)?, rank))
}

fn begin(
    stream: TcpStream,
    secret: &Secret,
    nonces: [&[u8]; 2],
    coming: bool,
) -> Result<Channel, HandshakeError> {
    let mut both = [0; 2 * NONCE];
    both[..NONCE].copy_from_slice(nonces[0]);
    both[NONCE..].copy_from_slice(nonces[1]);
    let to_first = Codes::new(secret, b"to rank 0", &both);
    let from_first = Codes::new(secret, b"from rank 0", &both);
    let (out, back) = if coming { (to_first, from_first) } else { (from_first, to_first) };
    Channel::new(stream, out, back).map_err(|_| HandshakeError::Silent)
}
