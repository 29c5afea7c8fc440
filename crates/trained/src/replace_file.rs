//! Small files that are replaced as a whole.

use crate::{Error, Result};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Replaces the content of `path`. A reader finds the whole old or the whole new content, also when the process is killed in between.
/// Missing folders are made.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("new/history.csv");
/// trained::replace_file(&path, b"epoch,loss\n")?;
/// assert_eq!(std::fs::read(&path)?, b"epoch,loss\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Io`] with the file or folder.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
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
        replace_file(&path, b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let error = replace_file(&folder.path().join("new"), b"text").unwrap_err().to_string();
        assert!(error.starts_with("can't write ") && error.contains("new: "), "{error}");
    }
}
