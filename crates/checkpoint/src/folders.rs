//! The folders of a store: which of them are checkpoints, how one takes its place and how one goes.
//!
//! No portable system call replaces a folder that is not empty, so a replacement takes two renames. The old
//! folder gets a hidden name, then the new one takes its place. Between the two the hidden folder still
//! counts as the checkpoint of its name, for readers and for the clean-up after a crash.

use crate::name::{self, Hidden};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder that is no valid checkpoint, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// The folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Error,
}

/// What stands in a store's folder.
#[derive(Default)]
pub(crate) struct Folders {
    /// Where the checkpoint of a name is, complete or not.
    pub checkpoints: BTreeMap<String, PathBuf>,
    /// Folders and links that can't be checkpoints.
    pub skipped: Vec<Skipped>,
}

impl Folders {
    /// Looks into `root`, which need not exist. Hidden things and plain files are no business of ours.
    pub(crate) fn read(root: &Path) -> Result<Folders> {
        let mut folders = Folders::default();
        let mut aside = Vec::new();
        for path in children(root)? {
            let skip = |why| Skipped { why: Error::damaged(&path, why), path: path.clone() };
            let Ok(kind) = fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) else {
                // It went while we looked.
                continue;
            };
            let name = path.file_name().and_then(|name| name.to_str());
            match name {
                _ if kind.is_file() => {}
                None => folders.skipped.push(skip("its name is not UTF-8")),
                Some(hidden) if hidden.starts_with('.') => {
                    if let Some((Hidden::Aside, name)) = Hidden::parse(hidden).filter(|_| kind.is_dir()) {
                        aside.push((name.to_owned(), path.clone()));
                    }
                }
                Some(_) if kind.is_symlink() => folders.skipped.push(skip("it is a symbolic link")),
                Some(name) if name::check(name).is_err() => {
                    folders.skipped.push(skip("no checkpoint has such a name"));
                }
                Some(name) => _ = folders.checkpoints.insert(name.to_owned(), path.clone()),
            }
        }
        for (name, path) in aside {
            folders.checkpoints.entry(name).or_insert(path);
        }
        Ok(folders)
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io("rename a new version to", to))
}

/// Moves the finished folder `new` to the place of the checkpoint `name`.
pub(crate) fn put(root: &Path, new: &Path, name: &str) -> Result<()> {
    let target = root.join(name);
    if fs::symlink_metadata(&target).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        rename(new, &target)?;
        return Ok(towers_files::sync_parent(&target)?);
    }
    let old = root.join(Hidden::Aside.folder(name));
    rename(&target, &old)?;
    if let Err(error) = rename(new, &target) {
        rename(&old, &target)?;
        return Err(error);
    }
    towers_files::sync_parent(&target)?;
    // The new one is safe. The next sweep deletes files that can't be deleted now.
    let _ = delete(&old);
    Ok(())
}

/// Removes the checkpoint `name` at `folder`: hidden at once, deleted then, so that no half of it is seen.
pub(crate) fn remove(root: &Path, name: &str, folder: &Path) -> Result<()> {
    let hidden = root.join(Hidden::Temporary.folder(name));
    fs::rename(folder, &hidden).map_err(Error::io("remove", folder))?;
    delete(&hidden)
}

/// Finishes the work of dead writers. Call it under the lock, or it would disturb living ones.
///
/// Housekeeping only: files that can't be removed stay, and prevent neither saves nor loads.
pub(crate) fn sweep(root: &Path) {
    for path in children(root).unwrap_or_default() {
        let _ = match hidden(&path) {
            Some((Hidden::Temporary, _)) => delete(&path),
            Some((Hidden::Aside, name)) if root.join(name).symlink_metadata().is_ok() => delete(&path),
            Some((Hidden::Aside, name)) => rename(&path, &root.join(name)),
            None => Ok(()),
        };
    }
}

/// Deletes a folder with all that is in it; links in it are removed, not followed. Whatever else bears one
/// of our hidden names is none of ours, and stays.
pub(crate) fn delete(folder: &Path) -> Result<()> {
    if !folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(Error::io("remove", folder))
}

/// Whether there is work of dead writers to finish, or of living ones.
pub(crate) fn has_leftovers(root: &Path) -> bool {
    children(root).unwrap_or_default().iter().any(|path| hidden(path).is_some())
}

/// The kind of a hidden path by its name, and the checkpoint that it belongs to.
fn hidden(path: &Path) -> Option<(Hidden, &str)> {
    path.file_name().and_then(|name| name.to_str()).and_then(Hidden::parse)
}

fn children(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("read", root))?,
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("read", root))).collect()
}
