//! Bringing the data into the data folder: one process at a time, all or nothing.
//!
//! The archive arrives in a `.part` file, is unpacked into a temporary folder beside the place where the data
//! belongs, is read and checked there like any data, and is then renamed into place. So the folder of the
//! batch files is never seen half-written, and a lock file keeps a second process waiting until it is there.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Kind};
use crate::download::{Download, Ended, Patience};
use crate::error::{Error, Result};
use crate::find::{Search, folders_in};
use crate::layout::Layout;
use crate::part::{Part, md5_of};
use crate::progress::{Listener, Progress};
use crate::source::Source;
use crate::unpack::unpack;

/// How many connections to a source may be cut, each after it has brought some bytes.
const CONNECTIONS: usize = 6;

/// How the names of unfinished downloads end.
const PART: &str = ".part";
/// How the names of temporary folders end.
const TEMPORARY: &str = ".tmp";

pub(crate) struct Fetch<'a> {
    pub kind: Kind,
    /// The parent of the batch files' folder.
    pub root: &'a Path,
    /// None at all to stay off the network.
    pub sources: &'a [Source],
    pub patience: Patience,
    pub listener: &'a mut Listener<'a>,
    /// What was found but can't be used.
    pub rejected: &'a mut Vec<Error>,
}

type Fetched = (PathBuf, Dataset);

impl Fetch<'_> {
    /// The data from an archive in the data folder or from a source; nothing if there is neither.
    pub fn run(&mut self) -> Result<Option<Fetched>> {
        if self.sources.is_empty() && self.local_archives().is_empty() {
            return Ok(None);
        }
        fs::create_dir_all(self.root).map_err(Error::io("create", self.root))?;
        let _lock = self.lock()?;
        self.remove_leftovers(TEMPORARY)?;
        // Another process may have fetched it in the meantime.
        if let Some(found) =
            Search::default().first(self.kind, &folders_in(self.kind, self.root), &mut |_| {})
        {
            return Ok(Some(found));
        }
        match self.unpack_local_archive()? {
            Some(found) => Ok(Some(found)),
            None if self.sources.is_empty() => Ok(None),
            None => self.try_sources().map(Some),
        }
    }

    /// Held until the file is dropped; the operating system lets go of it if the process dies.
    fn lock(&mut self) -> Result<File> {
        let path = self.root.join(format!(".{}.lock", self.kind.name()));
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::io("create", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                (self.listener)(Progress::Waiting { dir: self.root });
                file.lock().map_err(Error::io("lock", &path))?;
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path)(e)),
        }
        Ok(file)
    }

    /// Deletes what processes that were killed or sources that were left have left behind, by the ends of
    /// their names. Whoever holds the lock owns it all.
    fn remove_leftovers(&self, ends: &str) -> Result<()> {
        for entry in fs::read_dir(self.root).map_err(Error::io("list", self.root))? {
            let path = entry.map_err(Error::io("list", self.root))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&self.prefix()) && name.ends_with(ends) {
                let is_dir = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
                let deleted = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                deleted.map_err(Error::io("delete", &path))?;
            }
        }
        Ok(())
    }

    /// How the names of all that is unfinished begin.
    fn prefix(&self) -> String {
        format!(".{}-", self.kind.name())
    }

    fn local_archives(&self) -> Vec<(PathBuf, Source)> {
        let archives = Layout::both(self.kind).into_iter();
        let archives = archives.map(|layout| (self.root.join(layout.archive()), Source::archive("", layout)));
        archives.filter(|(path, _)| path.is_file()).collect()
    }

    /// An official archive that somebody put there: a browser, torchvision. It stays where it is.
    fn unpack_local_archive(&mut self) -> Result<Option<Fetched>> {
        for (path, official) in self.local_archives() {
            let name = path.display().to_string();
            let found = md5_of(&path)?;
            let reason = match official.md5 {
                Some(expected) if expected != found => Error::Archive {
                    archive: name,
                    reason: format!("MD5 is {found}, but the official archive's is {expected}"),
                },
                _ => match self.install(&path, &name) {
                    Ok(found) => return Ok(Some(found)),
                    Err(reason) => reason,
                },
            };
            (self.listener)(Progress::Rejected { reason: &reason });
            self.rejected.push(reason);
        }
        Ok(None)
    }

    fn try_sources(&mut self) -> Result<Fetched> {
        let agent = self.patience.agent();
        let sources = self.sources;
        let mut failures: Vec<String> = Vec::new();
        let mut crawling: Vec<(u64, &Source)> = Vec::new();
        let mut dead_hosts = HashSet::new();
        for (k, source) in sources.iter().enumerate() {
            if dead_hosts.contains(host(source)) {
                continue;
            }
            let may_leave = sources[k + 1..].iter().any(|other| !dead_hosts.contains(host(other)));
            match self.try_source(&Download { agent: &agent, source, patience: self.patience, may_leave })? {
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
            let download = Download { agent: &agent, source, patience: self.patience, may_leave: false };
            match self.try_source(&download)? {
                Outcome::Fetched(found) => return Ok(*found),
                Outcome::Slow(_) => {}
                Outcome::Failed(reason) => failures.push(reason.to_string()),
            }
        }
        Err(Error::NoSource { kind: self.kind, failures })
    }

    /// Downloads from one source, as often as its connection breaks, and installs what came.
    ///
    /// # Errors
    /// [`Error::Io`] alone: what this machine can't do, no other source mends.
    fn try_source(&mut self, download: &Download<'_>) -> Result<Outcome> {
        let source = download.source;
        if source.md5.is_none() {
            (self.listener)(Progress::NoChecksum { url: &source.url });
        }
        let part = format!("{}{}{PART}", self.prefix(), source.part_name());
        let mut part = Part::open(self.root.join(part))?;
        let mut connections_left = CONNECTIONS;
        loop {
            let before = part.bytes();
            let fetched = match download.run(&mut part, self.listener) {
                Ok(Ended::Complete) => self.install(part.path(), &source.url),
                Ok(Ended::Slow(bytes_per_second)) => {
                    (self.listener)(Progress::Slow { url: &source.url, bytes_per_second });
                    return Ok(Outcome::Slow(bytes_per_second));
                }
                Err(reason) => Err(reason),
            };
            let reason = match fetched {
                Ok(found) => {
                    part.delete()?;
                    self.remove_leftovers(PART)?;
                    return Ok(Outcome::Fetched(Box::new(found)));
                }
                Err(reason @ Error::Io { .. }) => return Err(reason),
                Err(reason) => reason,
            };
            (self.listener)(Progress::Failed { reason: &reason });
            if let Error::Archive { .. } = reason {
                part.restart()?;
            }
            connections_left -= 1;
            // Bytes from an earlier download may have spoilt this one, so it gets one fresh start.
            let afresh = before > 0 && part.bytes() == 0;
            let goes_on = matches!(reason, Error::Cut { .. }) && part.bytes() > before;
            if connections_left == 0 || !(afresh || goes_on) {
                if part.bytes() == 0 {
                    part.delete()?;
                }
                return Ok(Outcome::Failed(reason));
            }
        }
    }

    /// Unpacks an archive beside the place where the data belongs, checks it and puts it there.
    fn install(&mut self, archive: &Path, name: &str) -> Result<Fetched> {
        (self.listener)(Progress::Unpacking { archive: name });
        // Deleted with all that is in it when it is dropped, whatever happens before.
        let folder = tempfile::Builder::new().prefix(&self.prefix()).suffix(TEMPORARY).tempdir_in(self.root);
        let folder = folder.map_err(Error::io("create a folder in", self.root))?;
        let fresh = folder.path().join("unpacked");
        fs::create_dir(&fresh).map_err(Error::io("create", &fresh))?;
        let layout = unpack(archive, name, self.kind, &fresh)?;
        let data = layout
            .read(&fresh)
            .map_err(|reason| Error::Archive { archive: name.into(), reason: reason.to_string() })?;
        let place = self.root.join(layout.folder());
        self.move_aside(&place)?;
        fs::rename(&fresh, &place).map_err(Error::io("move the data to", &place))?;
        Ok((place, data))
    }

    /// What stands at `place` is not usable, or the data would not have been fetched; but it isn't ours to
    /// delete.
    fn move_aside(&mut self, place: &Path) -> Result<()> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        match place.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(Error::io("look at", place))?,
        };
        let aside = (1..).map(|k| self.root.join(format!("{name}.unusable-{k}"))).find(|path| !path.exists());
        let to = aside.expect("some number is free");
        fs::rename(place, &to).map_err(Error::io("move aside", place))?;
        (self.listener)(Progress::MovedAside { to: &to });
        Ok(())
    }
}

enum Outcome {
    Fetched(Box<Fetched>),
    /// In bytes a second.
    Slow(u64),
    Failed(Error),
}

/// `host:port` of an address.
fn host(source: &Source) -> &str {
    let rest = source.url.split_once("://").map_or(&*source.url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}
