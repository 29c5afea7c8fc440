//! Bringing the data into the data folder: one process at a time, all or nothing.
//!
//! The archive is downloaded to a `.part` file and unpacked into a temporary folder beside the final one. It
//! is read and checked there like any data, then renamed into place. So the folder of the batch files is
//! never seen half-written. A lock file makes a second process wait.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::checksum::md5_of;
use crate::classes::Kind;
use crate::dataset::Dataset;
#[cfg(feature = "download")]
use crate::download::Network;
use crate::error::{Error, Result};
use crate::find::{Search, folders_in};
use crate::layout::Layout;
use crate::progress::{Listener, Progress};
use crate::unpack::unpack;

/// How the names of temporary folders end.
const TEMPORARY: &str = ".tmp";

pub(crate) struct Fetch<'a> {
    pub kind: Kind,
    /// The parent of the batch files' folder.
    pub root: &'a Path,
    /// Where to download from; nothing to stay off the network.
    #[cfg(feature = "download")]
    pub network: Option<&'a Network>,
    pub listener: &'a mut Listener<'a>,
    /// What was found but can't be used.
    pub rejected: &'a mut Vec<Error>,
}

/// The folder of the batch files, and their content.
pub(crate) type Fetched = (PathBuf, Dataset);

impl Fetch<'_> {
    /// The data from an archive in the data folder or from a source; nothing if there is neither.
    pub fn run(&mut self) -> Result<Option<Fetched>> {
        if !self.downloads() && self.local_archives().is_empty() {
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
            None => self.download(),
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

    /// Deletes the leftovers of killed processes and abandoned sources, by the ends of their names. The
    /// holder of the lock owns them all.
    pub(crate) fn remove_leftovers(&self, ends: &str) -> Result<()> {
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
    pub(crate) fn prefix(&self) -> String {
        format!(".{}-", self.kind.name())
    }

    fn local_archives(&self) -> Vec<(PathBuf, Layout)> {
        let archives = Layout::both(self.kind).into_iter();
        let archives = archives.map(|layout| (self.root.join(layout.archive()), layout));
        archives.filter(|(path, _)| path.is_file()).collect()
    }

    /// An official archive that somebody put there: a browser, torchvision. It stays where it is.
    fn unpack_local_archive(&mut self) -> Result<Option<Fetched>> {
        for (path, layout) in self.local_archives() {
            let name = path.display().to_string();
            let (found, expected) = (md5_of(&path)?, layout.md5());
            let reason = match found == expected {
                false => Error::Archive {
                    archive: name,
                    reason: format!("MD5 is {found}, but the official archive's is {expected}"),
                },
                true => match self.install(&path, &name) {
                    Ok(found) => return Ok(Some(found)),
                    Err(reason) => reason,
                },
            };
            (self.listener)(Progress::Rejected { reason: &reason });
            self.rejected.push(reason);
        }
        Ok(None)
    }

    /// Unpacks an archive beside the place where the data belongs, checks it and puts it there.
    pub(crate) fn install(&mut self, archive: &Path, name: &str) -> Result<Fetched> {
        (self.listener)(Progress::Unpacking { archive: name });
        // Deleted with its content when it is dropped, in every case.
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

/// Without an HTTP client.
#[cfg(not(feature = "download"))]
impl Fetch<'_> {
    fn downloads(&self) -> bool {
        false
    }

    fn download(&mut self) -> Result<Option<Fetched>> {
        Ok(None)
    }
}
