//! Small files that are replaced as a whole.

use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content of `path`: whoever opens it finds the whole old or the whole new content, also when
/// the process is killed in between. Folders on the way are made.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    // What is no file, such as a pipe or a device, is not to be replaced by one.
    if fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return fs::write(path, content).map_err(Error::io("write", path));
    }
    let Some(name) = path.file_name() else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        return Err(Error::io("write", path)(source));
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(hidden);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).map_err(|source| {
        // The write has failed; that the rest of it stays behind would be no greater harm.
        let _ = fs::remove_file(&temporary);
        Error::io("write", path)(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/history.csv");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = replace(&taken, b"text").unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(Path::new("/"), b"").is_err());
    }
}
