//! One HTTP download: resumable, bounded in time and size, watched for its speed.

mod attempts;
mod part;
mod source;

pub use source::Source;

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, Response};
use reqwest::header::{self, HeaderMap};
use reqwest::{StatusCode, redirect};

use towers_dataset::caught;

use crate::Kind;
use crate::error::{Error, Result};
use crate::progress::{Listener, Progress};
use part::Part;

/// The most bytes an archive of unknown size may have; the official ones have 170 MB.
const MAX_ARCHIVE: u64 = 512 << 20;

/// Where to download from, and how.
#[derive(Debug)]
pub(crate) struct Network {
    /// Tried in this order.
    pub sources: Vec<Source>,
    pub patience: Patience,
}

impl Network {
    /// The public sources of a data set.
    pub fn official(kind: Kind) -> Network {
        let patience =
            Patience { timeout: Duration::from_secs(5), slow: 200_000, slow_over: Duration::from_secs(8) };
        Network { sources: Source::official(kind), patience }
    }
}

/// The last source is given up below so many bytes a second, with which an archive would take two days.
const TRICKLE: u64 = 1000;

/// The limits of a download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long a server may take to be reached and to answer, and how long to send the next bytes.
    pub timeout: Duration,
    /// A source that sends less than this many bytes a second ...
    pub slow: u64,
    /// ... over this long is left while there is another one.
    pub slow_over: Duration,
}

impl Patience {
    /// An HTTP client within these limits.
    pub fn client(&self) -> std::result::Result<HttpClient, String> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls()?)
            // Several addresses of one host share this time, so that a dead one leaves time for the next.
            .connect_timeout(self.timeout * 3 / 5)
            .timeout(self.timeout)
            .redirect(redirect::Policy::limited(10))
            .referer(false)
            .user_agent(concat!("towers-cifar/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| cause(&error))?;
        Ok(HttpClient(Some(client)))
    }
}

/// TLS by `ring`, with the root certificates of Mozilla: a fresh machine may have none.
fn tls() -> std::result::Result<rustls::ClientConfig, String> {
    let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A client that does not wait for its name lookups when it is dropped.
pub(crate) struct HttpClient(Option<Client>);

impl Drop for HttpClient {
    fn drop(&mut self) {
        // A dropped `Client` joins its thread, which waits for lookups that have timed out already.
        let client = self.0.take();
        // Where no thread starts, the client is dropped here.
        let _ = thread::Builder::new().spawn(move || drop(client));
    }
}

/// The innermost cause of an error: the outer ones of `reqwest` repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// How a download ended that didn't fail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every byte is there, and the checksum is right if one is known.
    Complete,
    /// It crawled, at this many bytes a second.
    Slow(u64),
}

pub(crate) struct Download<'a> {
    pub client: &'a HttpClient,
    pub source: &'a Source,
    pub patience: Patience,
    /// Whether to give up when it crawls.
    pub may_leave: bool,
}

impl Download<'_> {
    /// Completes `part` in one connection.
    ///
    /// # Errors
    /// Whatever the server does; `part` keeps the bytes that may be right, and none that can't be.
    pub fn run(&self, part: &mut Part, progress: &mut Listener<'_>) -> Result<Ended> {
        if self.source.size.is_some_and(|size| part.bytes() > size) {
            part.restart()?;
        }
        if part.bytes() == 0 || self.source.size != Some(part.bytes()) {
            progress(Progress::Connecting { url: &self.source.url, resume_at: part.bytes() });
            let Some(answer) = self.request(part)? else { return self.finish(part) };
            if let Some(rate) = self.receive(answer, part, progress)? {
                return Ok(Ended::Slow(rate));
            }
        }
        self.finish(part)
    }

    /// Sends the request; nothing if `part` is complete already.
    fn request(&self, part: &mut Part) -> Result<Option<Answer>> {
        let response = self.get(part.bytes())?;
        let range = content_range(response.headers());
        let (total, whole) = match (response.status(), range) {
            (StatusCode::PARTIAL_CONTENT, Some((Some(start), total))) if start == part.bytes() => {
                (total, false)
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, Some((None, Some(total)))) if total == part.bytes() => {
                return Ok(None);
            }
            // The server's file is shorter than the part that is here, or the answer is for another range.
            (StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT, _) if part.bytes() > 0 => {
                part.restart()?;
                return self.request(part);
            }
            (StatusCode::OK, _) => (response.content_length(), true),
            (status, _) => return Err(Error::Status { url: self.url(), status: status.as_u16() }),
        };
        self.check_size(total)?;
        Ok(Some(Answer { response, total: total.or(self.source.size), whole }))
    }

    fn get(&self, from: u64) -> Result<Response> {
        let unreachable = |reason| Error::Unreachable { url: self.url(), reason };
        let client = self.client.0.as_ref().ok_or_else(|| unreachable("the client is closed".into()))?;
        let mut request = client.get(&self.source.url).header(header::ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        // The client's thread may have panicked, for example where no thread could be started for a name lookup.
        let answer = caught(|| request.send()).map_err(unreachable)?;
        answer.map_err(|error| unreachable(cause(&error)))
    }

    fn check_size(&self, total: Option<u64>) -> Result<()> {
        match (self.source.size, total) {
            (Some(expected), Some(found)) if found != expected => {
                Err(Error::DownloadSize { url: self.url(), expected, found })
            }
            (None, Some(found)) if found > MAX_ARCHIVE => {
                Err(Error::DownloadSize { url: self.url(), expected: MAX_ARCHIVE, found })
            }
            _ => Ok(()),
        }
    }

    /// Appends the body to `part`; the speed if it was too slow.
    fn receive(&self, answer: Answer, part: &mut Part, progress: &mut Listener<'_>) -> Result<Option<u64>> {
        let Answer { mut response, total, whole } = answer;
        let most = total.unwrap_or(MAX_ARCHIVE);
        // What is on disk gives way to an archive, but not to the web page of some gateway.
        let mut must_restart = whole;
        let mut buffer = vec![0; 1 << 16];
        let (mut since, mut bytes_then) = (Instant::now(), part.bytes());
        loop {
            let n = match response.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(_) => return Err(Error::Cut { url: self.url(), found: part.bytes() }),
            };
            if must_restart {
                self.check_start(&buffer[..n])?;
                part.restart()?;
                (must_restart, bytes_then) = (false, 0);
            }
            if part.bytes() + n as u64 > most {
                let found = part.bytes() + n as u64;
                part.restart()?;
                return Err(Error::DownloadSize { url: self.url(), expected: most, found });
            }
            part.append(&buffer[..n])?;
            progress(Progress::Downloading { url: &self.source.url, bytes: part.bytes(), total });
            let window = since.elapsed();
            if window >= self.patience.slow_over {
                let rate = ((part.bytes() - bytes_then) as f64 / window.as_secs_f64()) as u64;
                if self.may_leave && rate < self.patience.slow {
                    return Ok(Some(rate));
                }
                // The only source that is left may crawl, but has to come to an end.
                if rate < TRICKLE {
                    let reason = format!("it sends {rate} bytes a second only; what came is kept");
                    return Err(Error::Unreachable { url: self.url(), reason });
                }
                (since, bytes_then) = (Instant::now(), part.bytes());
            }
        }
        if must_restart {
            self.check_start(&[])?; // There was nothing in the body.
        }
        if total.is_some_and(|total| part.bytes() < total) {
            return Err(Error::Cut { url: self.url(), found: part.bytes() });
        }
        Ok(None)
    }

    /// An archive begins with gzip's magic number.
    fn check_start(&self, bytes: &[u8]) -> Result<()> {
        let n = bytes.len().min(2);
        if n > 0 && bytes[..n] == [0x1f, 0x8b][..n] {
            return Ok(());
        }
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        Err(Error::NotAnArchive { url: self.url(), start })
    }

    /// Checks the whole; bytes that are wrong are forgotten.
    fn finish(&self, part: &mut Part) -> Result<Ended> {
        match (&self.source.md5, part.md5()) {
            (Some(expected), found) if *expected != found => {
                part.restart()?;
                Err(Error::Checksum { url: self.url(), expected: expected.clone(), found })
            }
            _ => Ok(Ended::Complete),
        }
    }

    fn url(&self) -> String {
        self.source.url.clone()
    }
}

/// What a server sends.
struct Answer {
    response: Response,
    /// The size of the whole archive.
    total: Option<u64>,
    /// Whether this is the archive from its first byte on, also where a range was asked for.
    whole: bool,
}

/// The first byte and the size of the whole from `Content-Range: bytes 5-9/10` or `bytes */10`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let start = range.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
    Some((start, total.trim().parse().ok()))
}
