//! Regular files: neither pipes nor devices, which a reader may wait for without end.

use crate::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The most bytes of text that are read. Histories of long runs are shorter.
const MAX_TEXT: u64 = 4 << 30;

/// The text of a regular file of at most 4 GiB.
///
/// # Errors
/// When `path` is no regular file, is too large, can't be read, or is not UTF-8.
///
/// ```
/// assert_eq!(towers_files::read_text("no/such.csv".as_ref()).unwrap_err().source.kind(), std::io::ErrorKind::NotFound);
/// ```
pub fn read_text(path: &Path) -> Result<String, Error> {
    read(path).map_err(Error::io("read", path))
}

fn read(path: &Path) -> io::Result<String> {
    // Reading a folder fails by itself, with a message that says so.
    check_regular(path)?;
    let file = File::open(path)?;
    let too_large = || {
        let what = format!("it is larger than {} GiB, the most that is read", MAX_TEXT >> 30);
        Err(io::Error::new(ErrorKind::FileTooLarge, what))
    };
    let length = file.metadata()?.len();
    if length > MAX_TEXT {
        return too_large();
    }
    let mut text = String::with_capacity(length as usize);
    file.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT { too_large() } else { Ok(text) }
}

/// Opens a regular file for reading, also by a symbolic link, and gives its length in bytes.
///
/// # Errors
/// When `path` is no regular file or can't be opened.
pub fn open_regular(path: &Path) -> Result<(File, u64), Error> {
    let metadata = fs::metadata(path).map_err(Error::io("read", path))?;
    if !metadata.is_file() {
        return Err(Error::io("read", path)(not_regular()));
    }
    let file = File::open(path).map_err(Error::io("open", path))?;
    Ok((file, metadata.len()))
}

/// Refuses what is there and is neither a regular file nor a folder: opening a pipe may take for ever.
///
/// # Errors
/// If it is a pipe, a socket or a device.
pub fn check_regular(path: &Path) -> io::Result<()> {
    let is_special = fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir());
    if is_special { Err(not_regular()) } else { Ok(()) }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_whole_bounded_and_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text"), "é\n").unwrap();
        assert_eq!(read_text(&at("text")).unwrap(), "é\n");
        fs::write(at("bytes"), b"\xff").unwrap();
        assert_eq!(read_text(&at("bytes")).unwrap_err().source.kind(), ErrorKind::InvalidData);
        assert_eq!(read_text(&at("none")).unwrap_err().source.kind(), ErrorKind::NotFound);
        assert_eq!(read_text(folder.path()).unwrap_err().path, folder.path());
        // Without its blocks, where the file system has such files.
        if File::create(at("large")).unwrap().set_len(MAX_TEXT + 1).is_ok() {
            let error = read_text(&at("large")).unwrap_err();
            assert_eq!(error.source.to_string(), "it is larger than 4 GiB, the most that is read");
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_and_links_to_them_are_opened_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "abc").unwrap();
        assert_eq!(open_regular(&at("file")).unwrap().1, 3);
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        assert_eq!(open_regular(&at("link")).unwrap().1, 3);
        let error = open_regular(folder.path()).unwrap_err();
        assert_eq!(error.source.to_string(), "it is not a regular file");
        [at("link"), folder.path().to_owned()].iter().for_each(|path| check_regular(path).unwrap());
        assert!(check_regular("/dev/null".as_ref()).is_err());
    }
}
