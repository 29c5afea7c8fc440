use super::files::Door;
use super::settings::is_loopback;
use super::stream::Stream;
use crate::{Error, Result};
use core::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process of the last try may still hold the port for so long.
const PORT: Duration = Duration::from_secs(15);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Where processes meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// At a port of rank 0's machine.
    Port(String, u16),
    /// In a folder that all see.
    Folder(PathBuf),
}

impl Spot {
    /// Rank 0's machine, for sentences.
    pub(super) fn host(&self) -> String {
        match self {
            Spot::Port(host, _) => host.clone(),
            Spot::Folder(folder) => folder.display().to_string(),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Port(host, port) => write!(f, "at {host}:{port}"),
            Spot::Folder(folder) => write!(f, "in {}", folder.display()),
        }
    }
}

/// Where rank 0 waits for the others.
pub(super) enum Listener {
    Port(TcpListener),
    Folder(Door),
}

impl Listener {
    /// Opens the spot to the others; a port that is taken must be free before `until`.
    pub(super) fn open(spot: &Spot, until: Instant) -> Result<Listener> {
        match spot {
            Spot::Port(host, port) => {
                listen((host.as_str(), *port), until.min(Instant::now() + PORT)).map(Listener::Port)
            }
            Spot::Folder(folder) => Door::open(folder).map(Listener::Folder),
        }
    }

    /// The next one who has come, if there is one.
    pub(super) fn accept(&mut self) -> Option<Stream> {
        match self {
            Listener::Port(listener) => {
                let (stream, _) = listener.accept().ok()?;
                // On some systems a connection inherits that its listener does not wait.
                stream.set_nonblocking(false).ok()?;
                Some(Stream::Tcp(stream))
            }
            Listener::Folder(door) => door.accept().map(Stream::Files),
        }
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
                std::thread::sleep(PAUSE);
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
