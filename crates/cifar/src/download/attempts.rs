//! Asking one source after the other.

use std::collections::HashSet;
use std::path::Path;

use super::part::Part;
use super::{Download, Ended, Network, Source};
use crate::error::{Error, Result};
use crate::fetch::{Fetch, Fetched};
use crate::progress::Progress;

/// How many connections to a source may be cut, each after it has brought some bytes.
const CONNECTIONS: usize = 6;

/// How the names of unfinished downloads end.
const PART: &str = ".part";

impl Fetch<'_> {
    /// Whether there is anything to download from.
    pub(crate) fn downloads(&self) -> bool {
        self.network.is_some_and(|network| !network.sources.is_empty())
    }

    /// The data from the first source that has it; nothing if there is none to ask.
    pub(crate) fn download(&mut self) -> Result<Option<Fetched>> {
        match self.network {
            Some(network) if self.downloads() => self.try_sources(network).map(Some),
            _ => Ok(None),
        }
    }

    fn try_sources(&mut self, network: &Network) -> Result<Fetched> {
        let Network { sources, patience } = network;
        let client = match patience.client() {
            Ok(client) => client,
            Err(reason) => return Err(Error::NoSource { kind: self.kind, failures: vec![reason] }),
        };
        let mut failures: Vec<String> = Vec::new();
        let mut crawling: Vec<(u64, &Source)> = Vec::new();
        let mut dead_hosts = HashSet::new();
        for (k, source) in sources.iter().enumerate() {
            if dead_hosts.contains(host(source)) {
                continue;
            }
            let may_leave = sources[k + 1..].iter().any(|other| !dead_hosts.contains(host(other)));
            match self.try_source(&Download { client: &client, source, patience: *patience, may_leave })? {
                Outcome::Fetched(found) => return Ok(*found),
                Outcome::Slow(rate) => crawling.push((rate, source)),
                Outcome::Failed(reason) => {
                    if let Error::Unreachable { .. } = reason {
                        dead_hosts.insert(host(source));
                    }
                    failures.push(reason.to_string());
                }
            }
        }
        // All that are left crawl: then the fastest, for as long as it takes.
        crawling.sort_by_key(|&(rate, _)| std::cmp::Reverse(rate));
        for (_, source) in crawling {
            let download = Download { client: &client, source, patience: *patience, may_leave: false };
            match self.try_source(&download)? {
                Outcome::Fetched(found) => return Ok(*found),
                Outcome::Slow(_) => {}
                Outcome::Failed(reason) => failures.push(reason.to_string()),
            }
        }
        Err(Error::NoSource { kind: self.kind, failures })
    }

    /// Downloads from one source, as often as its connection breaks, and installs the archive or the files.
    ///
    /// # Errors [`Error::File`] alone: no other source mends an error of this machine.
    fn try_source(&mut self, download: &Download<'_>) -> Result<Outcome> {
        let source = download.source;
        if let Some(md5) = source.md5.as_ref().filter(|md5| !is_md5(md5)) {
            return Ok(Outcome::Failed(Error::NoMd5 { url: source.url.clone(), md5: md5.clone() }));
        }
        let files = match source.files(self.kind) {
            Ok(files) => files,
            Err(reason) => return Ok(Outcome::Failed(reason)),
        };
        if files.iter().any(|file| file.md5.is_none()) {
            (self.listener)(Progress::NoChecksum { url: &source.url });
        }
        let part = |file: &Source| {
            Part::open(self.root.join(format!("{}{}{PART}", self.prefix(), file.part_name())))
        };
        let mut parts = files.iter().map(part).collect::<Result<Vec<Part>>>()?;
        let (mut connections_left, mut complete) = (CONNECTIONS, 0);
        loop {
            let before: Vec<u64> = parts.iter().map(Part::bytes).collect();
            let mut ended = Ok(Ended::Complete);
            for (source, part) in files.iter().zip(&mut parts).skip(complete) {
                ended = Download { source, ..*download }.run(part, self.listener);
                if !matches!(ended, Ok(Ended::Complete)) {
                    break;
                }
                complete += 1;
            }
            let fetched = match ended {
                Ok(Ended::Complete) => {
                    let paths: Vec<&Path> = parts.iter().map(Part::path).collect();
                    self.install(&paths, &source.url)
                }
                Ok(Ended::Slow(bytes_per_second)) => {
                    (self.listener)(Progress::Slow { url: &source.url, bytes_per_second });
                    return Ok(Outcome::Slow(bytes_per_second));
                }
                Err(reason) => Err(reason),
            };
            let reason = match fetched {
                Ok(found) => {
                    parts.into_iter().try_for_each(Part::delete)?;
                    self.remove_leftovers(PART)?;
                    return Ok(Outcome::Fetched(Box::new(found)));
                }
                Err(reason @ Error::File(_)) => return Err(reason),
                Err(reason) => reason,
            };
            (self.listener)(Progress::Failed { reason: &reason });
            if let Error::Archive { .. } = reason {
                parts.iter_mut().try_for_each(Part::restart)?;
                complete = 0;
            }
            connections_left -= 1;
            let mut changes = parts.iter().map(Part::bytes).zip(before);
            // Bytes from an earlier download may have spoilt this one, so it gets one fresh start.
            let afresh = changes.clone().any(|(now, before)| before > 0 && now == 0);
            let goes_on = matches!(reason, Error::Cut { .. }) && changes.any(|(now, before)| now > before);
            if connections_left == 0 || !(afresh || goes_on) {
                let empty = parts.into_iter().filter(|part| part.bytes() == 0);
                empty.into_iter().try_for_each(Part::delete)?;
                return Ok(Outcome::Failed(reason));
            }
        }
    }
}

enum Outcome {
    Fetched(Box<Fetched>),
    /// In bytes a second.
    Slow(u64),
    Failed(Error),
}

fn is_md5(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// `host:port` of an address.
fn host(source: &Source) -> &str {
    let rest = source.url.split_once("://").map_or(&*source.url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}
