//! Where the page is, and who may see it: on this machine everybody, from elsewhere those who know the token.

use super::http::Answer;
use crate::{Error, Result};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// The port without another one.
const PORT: u16 = 8686;

/// An address of the page.
pub(super) struct Address {
    at: SocketAddr,
    /// The first part of every path, unless only this machine can reach the address.
    token: Option<String>,
}

impl Address {
    /// Listens at an address. Without one any port will do if the usual one is taken.
    pub fn bind(at: Option<SocketAddr>) -> Result<(TcpListener, Self)> {
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let bound = match at {
            Some(at) => TcpListener::bind(at),
            None => TcpListener::bind(usual).or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))),
        };
        let refused = |error| refusal(at.unwrap_or(usual), &error);
        let listener = bound.map_err(refused)?;
        let at = listener.local_addr().map_err(refused)?;
        let token = if at.ip().is_loopback() { None } else { Some(token()?) };
        Ok((listener, Address { at, token }))
    }

    /// The URL of the page, for a browser that can reach it.
    pub fn url(&self) -> String {
        let ip = if self.at.ip().is_unspecified() { outward().unwrap_or(self.at.ip()) } else { self.at.ip() };
        let token = self.token.as_ref().map(|token| format!("{token}/")).unwrap_or_default();
        format!("http://{}/{token}", SocketAddr::new(ip, self.at.port()))
    }

    /// The path of a request without the token, or why there is no answer.
    ///
    /// Without a token only requests for this machine's own names are answered. Otherwise a page from elsewhere
    /// could read the figures by a name that it lets point here (DNS rebinding).
    pub fn admit<'p>(&self, path: &'p str, host: Option<&str>) -> Result<&'p str, Answer> {
        let Some(token) = &self.token else {
            return match host {
                Some(host) if is_local(host) => Ok(path),
                _ => Err(Answer::text(403, "This page is for http://localhost alone.")),
            };
        };
        let first = path.strip_prefix('/').unwrap_or(path);
        let (given, rest) = first.find('/').map_or((first, ""), |end| first.split_at(end));
        match (is_same(given, token), rest) {
            (false, _) => Err(Answer::text(403, "The address needs the token that the run has printed.")),
            (true, "") => Err(Answer::moved(&format!("/{token}/"))),
            (true, rest) => Ok(rest),
        }
    }
}

/// Reads an address: a port, a host or both.
pub(super) fn parse(text: &str) -> Result<SocketAddr> {
    let error = |reason| Error::Address { given: text.to_owned(), reason };
    let form = || error("must be a port or an address, as in 8080, 0.0.0.0 or [::1]:8080".to_owned());
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            (host.trim_start_matches('[').trim_end_matches(']'), port.parse().map_err(|_| form())?)
        }
        None => (text, PORT),
    };
    // The system takes a number for an address of four bytes.
    if host.contains('/') || host.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(form());
    }
    let found = (host, port).to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| error(format!("no machine is called {host}; give an address, as in 0.0.0.0:{port}")))
}

fn refusal(at: SocketAddr, error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::AddrInUse => {
            "another program has this port; give another one, or 0 for any free one".to_owned()
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have this address; 0.0.0.0 stands for all that it has".to_owned()
        }
        ErrorKind::PermissionDenied => "this port is for the system alone; give one above 1023".to_owned(),
        _ => format!("nothing can listen there: {error}"),
    };
    Error::Listen { at, reason }
}

/// 128 random bits in hexadecimal.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Token(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares in a time that does not tell how much is right.
fn is_same(given: &str, token: &str) -> bool {
    let differ = given.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == token.len() && differ == 0
}

/// Whether the host of a request is a name or an address of this machine alone.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The address under which other machines see this one. Nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation (RFC 5737), in the direction of which most packets leave.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_addresses_are_read() {
        for (text, expected) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("0.0.0.0", "0.0.0.0:8686"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("::1", "[::1]:8686"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "80800", "host:port", "http://localhost/", ":", "1.2.3.4:x"] {
            assert!(parse(text).is_err_and(|error| error.to_string().contains("as in")), "{text}");
        }
    }

    #[test]
    fn names_of_this_machine_alone_are_local() {
        for host in ["localhost", "LOCALHOST:8686", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["localhost.example.org", "127.0.0.1.nip.io:80", "10.0.0.1", "", "[::2]", "localhost:x"] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn only_the_token_opens_the_page() {
        let at = SocketAddr::from(([10, 0, 0, 1], 80));
        let address = Address { at, token: Some("abc".into()) };
        assert_eq!(address.url(), "http://10.0.0.1:80/abc/");
        let admit = |path| address.admit(path, None).map_err(|answer| answer.status());
        assert_eq!([admit("/abc/"), admit("/abc/figures")], [Ok("/"), Ok("/figures")]);
        assert_eq!(admit("/abc"), Err(308));
        for path in ["/", "", "/abd/", "/ab/", "/abcd/", "abc2/", "//abc/"] {
            assert_eq!(admit(path), Err(403), "{path}");
        }
        assert!(token().is_ok_and(|one| one.len() == 32 && one != token().unwrap()));
    }
}
