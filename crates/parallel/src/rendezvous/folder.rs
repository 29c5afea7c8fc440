//! The folder in which the processes of one start of a job find each other. Only its owner has access.

use super::digest;
use super::secret::random;
use crate::cluster::Place;
use crate::{Error, Result};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// How often the folder is created again after another process removed it.
const TRIES: usize = 100;

/// The folder of this start of the job, below the shared one.
pub(super) fn folder_of(shared: &Path, place: &Place) -> PathBuf {
    shared.join(name(place, place.start()))
}

fn name(place: &Place, start: u32) -> String {
    let job = digest(place.job.as_deref().unwrap_or_default().as_bytes());
    let job: String = job.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("towers-{job}-{start}")
}

/// Removes the folders of earlier starts of the job, whose processes the launcher has ended.
pub(super) fn clear_earlier(shared: &Path, place: &Place) {
    for start in place.start().saturating_sub(10)..place.start() {
        let folder = shared.join(name(place, start));
        if private(&folder).is_ok() {
            // Files that can't be removed do no harm.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Creates the folder, or checks that it exists and belongs to this user alone.
fn enter(folder: &Path) -> Result<()> {
    let failed =
        |why: String| Error::Rendezvous(format!("processes can't meet in {}: {why}", folder.display()));
    // A process that leaves may remove it at this moment.
    for _ in 0..TRIES {
        match private_builder().create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error.to_string()));
            }
            _ => {}
        }
        match private(folder) {
            Err(_) if !folder.exists() => {}
            checked => return checked.map_err(failed),
        }
    }
    Err(failed("it is taken away again and again".into()))
}

/// Creates a file in the folder, and the folder if it is missing.
pub(super) fn within(folder: &Path, make: impl Fn() -> io::Result<File>) -> Result<File> {
    let mut tries = 0..TRIES;
    loop {
        enter(folder)?;
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {}
            made => {
                let failed = |error| format!("can't write to {}: {error}", folder.display());
                return made.map_err(|error| Error::Rendezvous(failed(error)));
            }
        }
    }
}

/// Whether this is a folder of this user that no other user can enter.
fn private(folder: &Path) -> Result<(), String> {
    let about = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !about.is_dir() {
        return Err("it is no folder".into());
    }
    check_owner(folder, &about)
}

#[cfg(unix)]
fn private_builder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn private_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Compares the folder's owner with that of a new file of this process, as the file system reports them.
#[cfg(unix)]
fn check_owner(folder: &Path, about: &Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    if about.mode() & 0o077 != 0 {
        return Err(format!("others may enter it (mode {:o}); take it away", about.mode() & 0o777));
    }
    let trial = folder.join(format!("trial-{}", token().map_err(|error| error.to_string())?));
    let own = create(&trial).and_then(|file| file.metadata());
    let _ = fs::remove_file(&trial);
    match own {
        Ok(own) if own.uid() == about.uid() => Ok(()),
        Ok(_) => Err("it is another user's".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(unix))]
fn check_owner(_: &Path, _: &Metadata) -> Result<(), String> {
    Ok(())
}

/// A new file that only this user may read.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

pub(super) fn token() -> Result<String> {
    Ok(random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
