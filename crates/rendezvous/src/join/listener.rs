use crate::system::{Instant, TcpListener, TcpStream, sleep};
use crate::{Error, Result};
use core::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// A process of the last start may still hold the port for this long.
const PORT: Duration = Duration::from_secs(15);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Where rank 0 listens: its machine, and a port there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}:{}", self.host, self.port)
    }
}

/// Where rank 0 waits for the others.
pub(super) struct Listener(TcpListener);

impl Listener {
    /// Listens at the endpoint. A port in use is told at once, and must become free before `until`.
    pub(super) fn open(endpoint: &Endpoint, until: Instant, tell: fn(&str)) -> Result<Listener> {
        listen((&endpoint.host, endpoint.port), until.min(Instant::now() + PORT), tell).map(Listener)
    }

    /// The next connection, if there is one.
    pub(super) fn accept(&mut self) -> Option<TcpStream> {
        let (stream, _) = self.0.accept().ok()?;
        // On some systems a connection inherits the listener's non-blocking mode.
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }
}

/// Listens at the port: on a loopback address if rank 0 is there, else on all addresses.
fn listen((host, port): (&str, u16), until: Instant, tell: fn(&str)) -> Result<TcpListener> {
    let mut interfaces = interfaces(host).into_iter();
    let mut address = SocketAddr::new(interfaces.next().unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
    let mut told = false;
    loop {
        let error = match TcpListener::bind(address) {
            Ok(listener) => match listener.set_nonblocking(true) {
                Ok(()) => return Ok(listener),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until {
            if !told {
                let seconds = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
                tell(&format!(
                    "rank 0 can't listen at {address} yet ({error}), and tries for {seconds} seconds"
                ));
            }
            told = true;
            sleep(PAUSE);
        } else if let (Some(other), true) = (interfaces.next(), error.kind() != io::ErrorKind::AddrInUse) {
            address.set_ip(other);
        } else {
            return Err(Error::Meeting(format!(
                "rank 0 can't listen at {address}: {error}; TOWERS_RENDEZVOUS_PORT names another port"
            )));
        }
    }
}

/// The addresses to listen at, so that all connections to `host` arrive. Later ones are used if the first
/// fails.
fn interfaces(host: &str) -> Vec<IpAddr> {
    let (v4, v6): (IpAddr, IpAddr) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    match host.parse::<IpAddr>() {
        // There are more than the usual one: Debian gives a machine's name 127.0.1.1.
        Ok(ip) if ip.is_loopback() => return vec![ip],
        Ok(IpAddr::V4(_)) => return vec![v4],
        Ok(IpAddr::V6(_)) => return vec![v6],
        // The others may resolve the name to other addresses than this machine does.
        Err(_) if !is_loopback(host) && hears_both() => return vec![v6, v4],
        Err(_) => {}
    }
    let mut addresses = (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    let first = addresses.next();
    let is_v6 = first.is_some_and(|ip| ip.is_ipv6()) && !addresses.any(|ip| ip.is_ipv4());
    match (is_loopback(host), is_v6) {
        (true, false) => vec![Ipv4Addr::LOCALHOST.into()],
        (true, true) => vec![Ipv6Addr::LOCALHOST.into()],
        (false, true) => vec![v6],
        (false, false) => vec![v4],
    }
}

/// Whether a listener on all IPv6 addresses also accepts IPv4 connections.
fn hears_both() -> bool {
    let told = || std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    cfg!(target_os = "linux") && told().is_ok_and(|only| only.trim() == "0")
}

/// Whether only processes of this machine can connect to `host`.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Listens where rank 0 does at `host`. Returns which of these addresses reach it.
    fn reached(host: &str, addresses: &[&str]) -> Vec<bool> {
        let mut interfaces = interfaces(host).into_iter();
        let listener = interfaces.find_map(|ip| TcpListener::bind((ip, 0)).ok()).unwrap();
        let port = listener.local_addr().unwrap().port();
        addresses.iter().map(|address| TcpStream::connect((*address, port)).is_ok()).collect()
    }

    /// Other systems need further loopback addresses to be configured.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_loopback_address_is_heard_where_it_is() {
        let all = ["127.0.0.1", "127.0.1.1"];
        assert_eq!(reached("127.0.1.1", &all), [false, true]);
        assert_eq!(reached("127.0.0.1", &all), [true, false]);
        assert_eq!(reached("localhost", &all), [true, false]);
    }

    #[test]
    fn a_name_is_heard_at_all_addresses() {
        assert_eq!(reached("192.0.2.1", &["127.0.0.1"]), [true]);
        if !hears_both() || TcpListener::bind("[::1]:0").is_err() {
            return println!("SKIPPED: listening by both versions of IP: one socket can't here");
        }
        assert_eq!(reached("no-such-machine.invalid", &["::1", "127.0.0.1"]), [true, true]);
    }
}
