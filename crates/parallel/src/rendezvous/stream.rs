use super::files::Files;
use super::receive::{ReceiveError, left};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// A stream of bytes in both directions.
pub(super) enum Stream {
    Tcp(TcpStream),
    Files(Files),
}

impl Stream {
    /// A second handle of the stream: one half reads, the other writes.
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Files(files) => Stream::Files(files.clone()),
        })
    }

    /// Small messages leave at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nodelay(true),
            Stream::Files(_) => Ok(()),
        }
    }

    /// The other side's machine.
    pub(super) fn host(&self) -> String {
        match self {
            Stream::Tcp(stream) => {
                stream.peer_addr().map_or("unknown".into(), |address| address.ip().to_canonical().to_string())
            }
            Stream::Files(files) => files.host().to_owned(),
        }
    }

    /// Closes the connection, for both halves.
    pub(super) fn close(&self) {
        match self {
            // It may be closed already.
            Stream::Tcp(stream) => _ = stream.shutdown(Shutdown::Both),
            Stream::Files(files) => files.close(),
        }
    }

    /// Whether the other side has closed the connection, as far as is known here. No other thread may be
    /// reading.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Stream::Tcp(stream) => {
                let _ = stream.set_nonblocking(true);
                let peeked = stream.peek(&mut [0]);
                let _ = stream.set_nonblocking(false);
                peeked.map_or_else(|error| !passes(&error), |count| count == 0)
            }
            Stream::Files(files) => files.is_closed(),
        }
    }

    /// Fills `bytes` before `until`, however slowly they arrive.
    pub(super) fn read_until(&mut self, bytes: &mut [u8], until: Instant) -> Result<(), ReceiveError> {
        match self {
            Stream::Tcp(stream) => read_until(stream, bytes, until),
            Stream::Files(files) => files.read_until(bytes, until),
        }
    }

    pub(super) fn write_until(&self, bytes: &[u8], until: Instant) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => write_until(stream, bytes, until),
            Stream::Files(files) => files.write(bytes),
        }
    }
}

fn read_until(mut stream: &TcpStream, mut bytes: &mut [u8], until: Instant) -> Result<(), ReceiveError> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(until)?)).map_err(|_| ReceiveError::Gone)?;
        match stream.read(bytes) {
            Ok(0) => return Err(ReceiveError::Gone),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if passes(&error) => {}
            Err(_) => return Err(ReceiveError::Gone),
        }
    }
    Ok(())
}

fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
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

/// Whether to retry: a time-out or a signal.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
