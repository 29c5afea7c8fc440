//! Names that are on the disk when a function returns, and names that no other process has.

use crate::Error;
use std::fs;
#[cfg(unix)]
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes a folder and those above it that are missing, and their names durable.
///
/// # Errors
/// When a folder can't be created or synced.
pub fn create_folders(path: &Path) -> Result<(), Error> {
    create(path).map_err(Error::io("create", path))
}

pub(crate) fn create(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(path)?;
    missing.iter().try_for_each(|folder| sync(parent(folder)))
}

/// Makes the name of `path` durable, new, replaced or removed: syncs the folder that holds it. Only Unix has a call
/// for that; elsewhere the file system decides.
///
/// # Errors
/// When the folder can't be opened or synced.
pub fn sync_parent(path: &Path) -> Result<(), Error> {
    let folder = parent(path);
    sync(folder).map_err(Error::io("sync", folder))
}

fn sync(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// `PID-N`, which no other name of this process and no live process of this machine has.
pub fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_created_and_errors_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        create_folders(&deep).unwrap();
        create_folders(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(deep.join("file"), "").unwrap();
        let error = create_folders(&deep.join("file/d")).unwrap_err();
        assert_eq!((error.action, error.path), ("create", deep.join("file/d")));
        sync_parent(&deep.join("file")).unwrap();
        sync_parent("in the current folder".as_ref()).unwrap();
        assert!(cfg!(not(unix)) || sync_parent(&deep.join("none/file")).is_err());
        assert_ne!(unique_name(), unique_name());
    }
}
