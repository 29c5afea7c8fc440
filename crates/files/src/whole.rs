//! Files that are replaced as a whole.

use crate::durable::{self, parent};
use crate::{Error, check_regular};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces the file `path` by the output of `fill`. A reader finds the whole old or the whole new content,
/// also when the process is killed in between.
///
/// The content is durable. So is the name, after [`sync_parent`](crate::sync_parent).
///
/// A process that is killed leaves a hidden `.NAME.tmp-PID-N` beside `path`. The next replacement of the same file removes it. The file
/// of a process that lives is locked, and stays.
///
/// If `path` is a link, the file that it leads to is replaced. The new file has the permissions of the old
/// one.
///
/// # Errors
/// When `fill` fails, or the disk refuses: then the old content stays.
///
/// ```
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("history.csv");
/// towers_files::replace(&path, |file| file.write_all(b"epoch,loss"))?;
/// assert_eq!(towers_files::read_text(&path)?, "epoch,loss");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    replace_by(path, fill).map_err(Error::io("write", path))
}

fn replace_by(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let linked = fs::canonicalize(path).ok().filter(|_| path.is_symlink());
    let path = linked.as_deref().unwrap_or(path);
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    };
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".tmp-");
    let folder = parent(path);
    remove_leftovers(folder, &prefix);
    let (mut file, temporary) = create(folder, &prefix)?;
    fill(&mut file)?;
    if let Ok(old) = fs::metadata(path) {
        // Some file systems have none.
        let _ = file.set_permissions(old.permissions());
    }
    file.sync_all()?;
    fs::rename(&temporary.path, path)?;
    temporary.keep();
    Ok(())
}

/// Replaces a small file by `content`, as [`replace`] does. Folders on the way are made. A pipe or a device is
/// refused: a writer would wait for a reader.
///
/// # Errors
/// If the disk refuses, or if this is no regular file.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let written = check_regular(path)
        .and_then(|()| durable::create(parent(path)))
        .and_then(|()| replace_by(path, |file| file.write_all(content)));
    written.map_err(Error::io("write", path))
}

/// As [`write()`], for a path that somebody has named as an output: a pipe or a device is written to.
///
/// # Errors
/// If the disk refuses.
pub fn write_output(path: &Path, content: &[u8]) -> Result<(), Error> {
    match check_regular(path) {
        Ok(()) => write(path, content),
        Err(_) => fs::write(path, content).map_err(Error::io("write", path)),
    }
}

/// A file that is removed when this is dropped, unless it was kept.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // An error is already on its way to the caller; this is the best that can be done beside it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A new file whose name begins with `prefix`, locked while it is open.
fn create(folder: &Path, prefix: &OsStr) -> io::Result<(File, Temporary)> {
    loop {
        let mut name = prefix.to_owned();
        name.push(durable::unique_name());
        let path = folder.join(name);
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            // A process in another container may have the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        // Another process may take the file for a leftover until it is locked. Some file systems have no locks.
        let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let temporary = Temporary { path, kept: false };
        if !taken && temporary.path.exists() {
            return Ok((file, temporary));
        }
    }
}

/// Removes the files whose name begins with `prefix` and whose writer is dead. What can't be removed stays.
fn remove_leftovers(folder: &Path, prefix: &OsStr) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let is_ours = number.is_some_and(|number| {
            !number.is_empty() && number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
        });
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // The system takes the lock of a process away when it ends.
        if let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_text;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.csv");
        for text in ["one", "two"] {
            replace(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(read_text(&path).unwrap(), text);
        }
        replace(&path, |_| Err(io::Error::other("full"))).unwrap_err();
        assert_eq!(read_text(&path).unwrap(), "two");
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, |_| Ok(())).is_err() && replace("/".as_ref(), |_| Ok(())).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_and_the_permissions_of_a_file_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/a.csv"), "old").unwrap();
        fs::set_permissions(at("elsewhere/a.csv"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("elsewhere/a.csv", at("a.csv")).unwrap();
        replace(&at("a.csv"), |file| file.write_all(b"new")).unwrap();
        assert!(at("a.csv").is_symlink());
        assert_eq!(read_text(&at("elsewhere/a.csv")).unwrap(), "new");
        assert_eq!(fs::metadata(at("elsewhere/a.csv")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
    }

    /// Nobody reads or writes the other end.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused_and_a_device_that_is_named_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("status.json");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for error in [read_text(&pipe).err(), write(&pipe, b"x").err()] {
            assert_eq!(error.unwrap().source.to_string(), "it is not a regular file");
        }
        write_output("/dev/null".as_ref(), b"x").unwrap();
        write_output(&folder.path().join("a/b"), b"x").unwrap();
        assert_eq!(read_text(&folder.path().join("a/b")).unwrap(), "x");
    }

    /// What a lock tells: of a process that lives from one that was killed.
    #[test]
    fn files_of_dead_writers_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = [".a.csv.tmp-7-0", ".a.csv.tmp-7", ".a.csv.tmp-", ".a.csv.tmp-mine", ".b.csv.tmp-7-0"];
        names.iter().for_each(|name| fs::write(at(name), "half").unwrap());
        let living = File::create(at(".a.csv.tmp-8-0")).unwrap();
        living.lock().unwrap();
        replace(&at("a.csv"), |file| file.write_all(b"whole")).unwrap();
        assert_eq!(names.map(|name| at(name).exists()), [false, false, true, true, true]);
        assert!(at(".a.csv.tmp-8-0").exists());
        // Closing alone may come too late: a process that another test starts shares the open file until it runs its program.
        living.unlock().unwrap();
        replace(&at("a.csv"), |file| file.write_all(b"whole")).unwrap();
        assert!(!at(".a.csv.tmp-8-0").exists());
    }
}
