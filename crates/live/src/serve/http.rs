//! As much of HTTP/1.1 (RFC 9112) as one page needs: a GET request per connection, without a body.

use crate::prometheus::CONTENT_TYPE;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The longest head of a request, and the time for it. A slow or silent client is no use.
const HEAD: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// What a request asks for.
pub(super) struct Request<'r> {
    /// The path without a query.
    pub path: &'r str,
    /// The host that the client believes to talk to.
    pub host: Option<&'r str>,
}

/// An answer.
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    policy: &'static str,
    location: Option<String>,
    body: String,
}

impl Answer {
    fn new(status: u16, kind: &'static str, body: impl Into<String>) -> Self {
        Answer { status, kind, policy: "default-src 'none'", location: None, body: body.into() }
    }

    /// A page, or a part of one.
    pub fn html(body: String) -> Self {
        Answer::new(200, "text/html", body)
    }

    /// The figures for Prometheus.
    pub fn figures(body: String) -> Self {
        Answer::new(200, CONTENT_TYPE, body)
    }

    pub fn script(body: &str) -> Self {
        Answer::new(200, "text/javascript", body)
    }

    /// A sentence.
    pub fn text(status: u16, body: &str) -> Self {
        Answer::new(status, "text/plain", format!("{body}\n"))
    }

    /// Another path.
    pub fn moved(path: &str) -> Self {
        Answer { location: Some(path.to_owned()), ..Answer::text(308, "The page is in this folder.") }
    }

    pub fn policy(self, policy: &'static str) -> Self {
        Answer { policy, ..self }
    }

    #[cfg(test)]
    pub fn status(&self) -> u16 {
        self.status
    }

    fn to_bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            308 => "Permanent Redirect",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let more = match (&self.location, self.status) {
            (Some(path), _) => format!("Location: {path}\r\n"),
            (None, 405) => "Allow: GET\r\n".to_owned(),
            _ => String::new(),
        };
        let Answer { status, kind, policy, body, .. } = self;
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
             Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\nConnection: close\r\n{more}\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// Answers the one request of a connection. A client that closes the connection early gets none.
pub(super) fn answer(stream: &TcpStream, respond: impl FnOnce(&Request<'_>) -> Answer) {
    let mut stream = stream;
    let answer = match read_head(&mut stream) {
        Ok(head) => read(&head).map_or_else(|refusal| refusal, |request| respond(&request)),
        Err(Some(refusal)) => refusal,
        Err(None) => return,
    };
    let _ = stream.set_write_timeout(Some(PATIENCE));
    if stream.write_all(&answer.to_bytes()).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        // A connection that is closed with unread data is reset, and may lose the answer.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = stream.read(&mut [0; HEAD]);
    }
}

/// The head of a request, up to its empty line; `None` for a connection that ends before.
fn read_head(stream: &mut &TcpStream) -> Result<Vec<u8>, Option<Answer>> {
    let (began, mut head) = (Instant::now(), Vec::new());
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Some(Answer::text(408, "The request took too long.")));
        }
        let mut some = [0; 1024];
        match stream.read(&mut some) {
            Ok(0) => return Err(None),
            Ok(count) => head.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return Err(None),
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(head);
        }
        if head.len() > HEAD {
            return Err(Some(Answer::text(431, "The head of the request is too long.")));
        }
    }
}

/// Reads the head of a request.
fn read(head: &[u8]) -> Result<Request<'_>, Answer> {
    let bad = || Answer::text(400, "This is no request.");
    let head = std::str::from_utf8(head).map_err(|_| bad())?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(bad()) };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(bad());
    }
    if method != "GET" {
        return Err(Answer::text(405, "This page can only be read."));
    }
    let named =
        |line: &'_ &str| line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"));
    let mut hosts = lines.filter(named).filter_map(|line| Some(line.split_once(':')?.1.trim()));
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad());
    }
    let path = target.split(['?', '#']).next().unwrap_or(target);
    Ok(Request { path, host })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_or_refused() {
        let request = |head: &'static str| {
            read(head.as_bytes())
                .map(|request| (request.path, request.host))
                .map_err(|answer| answer.status())
        };
        assert_eq!(
            request("GET /figures?x HTTP/1.1\r\nhOst:  a:80 \r\nX: y"),
            Ok(("/figures", Some("a:80")))
        );
        assert_eq!(request("GET / HTTP/1.0"), Ok(("/", None)));
        for head in ["POST / HTTP/1.1", "HEAD / HTTP/1.1", "DELETE /figures HTTP/1.1"] {
            assert_eq!(request(head), Err(405), "{head}");
        }
        let others =
            ["", "GET /", "GET  / HTTP/1.1", "GET / SPDY/3", "GET http://a/ HTTP/1.1", "GET * HTTP/1.1"];
        for head in others.into_iter().chain(["GET / HTTP/1.1\r\nHost: a\r\nHost: b"]) {
            assert_eq!(request(head), Err(400), "{head}");
        }
        assert!(read(&[0xff; 30]).is_err());
    }
}
