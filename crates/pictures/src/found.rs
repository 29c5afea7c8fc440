//! Files of users: which of a folder are pictures, by the same rule for training, evaluation and prediction.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::{Error, Result};

/// The endings of pictures' names.
pub const ENDINGS: [&str; 6] = ["bmp", "gif", "jpeg", "jpg", "png", "webp"];

/// What a folder and the folders in it hold, by name.
///
/// Entries whose names begin with a dot are left out.
///
/// ```
/// use towers_pictures::Found;
///
/// let dir = tempfile::tempdir()?;
/// for name in ["a.png", "B.JPG", "notes.txt", ".DS_Store"] {
///     std::fs::write(dir.path().join(name), "")?;
/// }
/// let found = Found::below(dir.path());
/// assert_eq!(found.pictures, ["B.JPG", "a.png"].map(|name| dir.path().join(name)));
/// assert_eq!(found.others, [dir.path().join("notes.txt")]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Found {
    /// The files with one of the [`ENDINGS`], in capitals or not.
    pub pictures: Vec<PathBuf>,
    /// The other files, and links to folders, which may form a cycle.
    pub others: Vec<PathBuf>,
    /// Why folders could not be listed.
    pub unlisted: Vec<Error>,
}

impl Found {
    /// Looks through a folder and the folders in it.
    pub fn below(dir: &Path) -> Found {
        let mut found = Found::default();
        found.add(dir);
        found
    }

    fn add(&mut self, dir: &Path) {
        let paths = match entries(dir) {
            Ok(paths) => paths,
            Err(error) => return self.unlisted.push(error),
        };
        for path in paths {
            if path.is_dir() && !path.is_symlink() {
                self.add(&path);
            } else if is_picture(&path) {
                self.pictures.push(path);
            } else {
                self.others.push(path);
            }
        }
    }
}

/// Whether a file is a picture by its name.
pub(crate) fn is_picture(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)) && path.is_file()
}

/// The entries of a folder, sorted by name, without hidden ones and the folder that macOS adds to archives.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let listed: io::Result<Vec<PathBuf>> =
        fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths = listed.map_err(Error::io("list", dir))?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        !name.as_encoded_bytes().starts_with(b".") && name != "__MACOSX"
    });
    paths.sort();
    Ok(paths)
}
