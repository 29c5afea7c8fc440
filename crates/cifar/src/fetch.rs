//! Bringing the data into the data folder: one process at a time, all or nothing.
//!
//! The archive is downloaded to a `.part` file and unpacked into a temporary folder beside the final one; so is each of the files
//! of MNIST. The content is read and checked there like any data, then renamed into place. So the folder of the files is never
//! seen half-written. A lock file makes a second process wait.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use towers_dataset::Dataset;

use crate::checksum::md5_of;
#[cfg(feature = "download")]
use crate::download::Network;
use crate::error::{Error, Result};
use crate::find::{Search, folders_in};
use crate::kinds::Kind;
use crate::layout::Layout;
use crate::progress::{Listener, Progress};
use crate::unpack::{unpack, unpack_files};

/// How the names of temporary folders end.
const TEMPORARY: &str = ".tmp";

pub(crate) struct Fetch<'a> {
    pub kind: Kind,
    /// The parent of the files' folder.
    pub root: &'a Path,
    /// Where to download from; nothing to stay off the network.
    #[cfg(feature = "download")]
    pub network: Option<&'a Network>,
    pub listener: &'a mut Listener<'a>,
    /// What was found but can't be used.
    pub rejected: &'a mut Vec<Error>,
}

/// The folder of the files, and their content.
pub(crate) type Fetched = (PathBuf, Dataset);

impl Fetch<'_> {
    /// The data from an archive in the data folder or from a source; nothing if there is neither.
    pub fn run(&mut self) -> Result<Option<Fetched>> {
        if !self.downloads() && self.local_archives().is_empty() {
            return Ok(None);
        }
        fs::create_dir_all(self.root).map_err(Error::io("create", self.root))?;
        let _lock = match self.lock() {
            // An archive in a folder that can't be written is read, and nothing is written.
            Err(Error::File(error)) if is_read_only(&error.source) && !self.local_archives().is_empty() => {
                return self.read_local_archive();
            }
            lock => lock?,
        };
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
                // As above.
                let _ = file.lock();
            }
            // Some network file systems have no locks. The names of temporary folders are unique without
            // them.
            Err(TryLockError::Error(_)) => {}
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

    /// The official archives that are in the data folder, each with its MD5.
    fn local_archives(&self) -> Vec<(PathBuf, &'static str)> {
        let archives = Layout::all(self.kind).filter_map(Layout::archive);
        let archives = archives.map(|(name, md5, _)| (self.root.join(name), md5));
        archives.filter(|(path, _)| path.is_file()).collect()
    }

    /// An official archive that somebody put there: a browser, torchvision. It stays where it is.
    fn unpack_local_archive(&mut self) -> Result<Option<Fetched>> {
        self.use_local_archive(&|fetch, archive, name| fetch.install(&[archive], name))
    }

    /// The same without writing into the data folder. Gives the archive's path.
    fn read_local_archive(&mut self) -> Result<Option<Fetched>> {
        self.use_local_archive(&Self::read_archive)
    }

    /// The content of an archive, which is unpacked into the system's folder for temporary files and deleted
    /// again.
    fn read_archive(&mut self, archive: &Path, name: &str) -> Result<Fetched> {
        let unpacked = self.unpack_in(&env::temp_dir(), &[archive], name)?;
        Ok((archive.to_owned(), unpacked.data))
    }

    fn use_local_archive(
        &mut self,
        take: &dyn Fn(&mut Self, &Path, &str) -> Result<Fetched>,
    ) -> Result<Option<Fetched>> {
        for (path, expected) in self.local_archives() {
            let name = path.display().to_string();
            let found = md5_of(&path)?;
            let reason = match found == expected {
                false => Error::Archive {
                    archive: name,
                    reason: format!("MD5 is {found}, but the official archive's is {expected}"),
                },
                true => match take(self, &path, &name) {
                    Ok(found) => return Ok(Some(found)),
                    Err(reason) => reason,
                },
            };
            (self.listener)(Progress::Rejected { reason: &reason });
            self.rejected.push(reason);
        }
        Ok(None)
    }

    /// Unpacks an archive, or files, beside the place where the data belongs, checks it and puts it there.
    pub(crate) fn install(&mut self, files: &[&Path], name: &str) -> Result<Fetched> {
        let Unpacked { _folder, fresh, layout, data } = self.unpack_in(self.root, files, name)?;
        let place = self.root.join(layout.folder());
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        self.move_aside(&place)?;
        fs::rename(&fresh, &place).map_err(Error::io("move the data to", &place))?;
        Ok((place, data))
    }

    /// Unpacks an archive, or the single files in their order, into a new folder in `parent`, and checks it.
    fn unpack_in(&mut self, parent: &Path, files: &[&Path], name: &str) -> Result<Unpacked> {
        (self.listener)(Progress::Unpacking { archive: name });
        let folder = tempfile::Builder::new().prefix(&self.prefix()).suffix(TEMPORARY).tempdir_in(parent);
        let folder = folder.map_err(Error::io("create a folder in", parent))?;
        let fresh = folder.path().join("unpacked");
        fs::create_dir(&fresh).map_err(Error::io("create", &fresh))?;
        let layout = match files {
            [archive] => unpack(archive, name, self.kind, &fresh)?,
            files => unpack_files(files, name, self.kind, &fresh)?,
        };
        let data = layout
            .read(&fresh)
            .map_err(|reason| Error::Archive { archive: name.into(), reason: reason.to_string() })?;
        Ok(Unpacked { _folder: folder, fresh, layout, data })
    }

    /// What stands at `place` is not usable, or the data would not have been fetched; but it isn't ours to
    /// delete.
    fn move_aside(&mut self, place: &Path) -> Result<()> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        match place.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(Error::io("look at", place))?,
        };
        let aside =
            (1..).map(|k| place.with_file_name(format!("{name}.unusable-{k}"))).find(|path| !path.exists());
        let to = aside.expect("some number is free");
        fs::rename(place, &to).map_err(Error::io("move aside", place))?;
        (self.listener)(Progress::MovedAside { to: &to });
        Ok(())
    }
}

/// An archive's content.
struct Unpacked {
    /// Deleted with its content when this is dropped, in every case.
    _folder: TempDir,
    /// The folder of the files, in that one.
    fresh: PathBuf,
    layout: Layout,
    data: Dataset,
}

/// Whether a folder refused a new file because it can't be written at all.
fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
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

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    #[test]
    fn an_archive_is_read_without_writing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cifar-10-binary.tar.gz");
        let record = |label: u8| [&[label][..], &[label; 3072]].concat();
        let batch: Vec<u8> = (0..10_000).flat_map(|k| record((k % 10) as u8)).collect();
        let gz = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        let mut tar = tar::Builder::new(gz);
        for name in (1..=5).map(|k| format!("data_batch_{k}.bin")).chain(["test_batch.bin".into()]) {
            let mut header = tar::Header::new_gnu();
            header.set_size(batch.len() as u64);
            tar.append_data(&mut header, name, &batch[..]).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        let mut fetch = Fetch {
            kind: Kind::Cifar10,
            root: dir.path(),
            #[cfg(feature = "download")]
            network: None,
            listener: &mut |_| {},
            rejected: &mut Vec::new(),
        };
        let (found, data) = fetch.read_archive(&path, "an archive").unwrap();
        assert_eq!((found, data.train.len(), data.test.len()), (path, 50_000, 10_000));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
