//! Small files that are replaced as a whole.

use crate::{Error, Result};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Replaces the content of `path`: whoever opens it finds the whole old or the whole new content, also when
/// the process is killed in between. Folders on the way are made.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    // What is no file, such as a pipe or a device, is not to be replaced by one.
    if fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return fs::write(path, content).map_err(Error::io("write", path));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    checkpoint::replace_file(path, |file| file.write_all(content)).map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_and_a_failure_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/history.csv");
        replace(&path, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let error = replace(&folder.path().join("new"), b"text").unwrap_err().to_string();
        assert!(error.starts_with("can't write ") && error.contains("new: "), "{error}");
    }
}
