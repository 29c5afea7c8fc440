//! The pictures that a command line names.

use anyhow::anyhow;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The extensions of pictures in folders.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// The file itself, whatever its name; for a folder, its pictures and those of its subfolders, sorted. Calls
/// `refuse` for folders that can't be read, and continues.
pub fn named(path: &Path, refuse: &mut impl FnMut(&anyhow::Error)) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    if walk(path, &mut files, refuse) && files.is_empty() {
        refuse(&anyhow!("{}: the folder has no .png, .jpg or .jpeg file", path.display()));
    }
    files
}

/// Skips hidden files and folders, and links to folders, which may form a cycle. Returns whether all could be
/// listed.
fn walk(folder: &Path, files: &mut Vec<PathBuf>, refuse: &mut impl FnMut(&anyhow::Error)) -> bool {
    let listed: io::Result<Vec<_>> = fs::read_dir(folder).and_then(Iterator::collect);
    let mut entries: Vec<fs::DirEntry> = match listed {
        Ok(entries) => entries,
        Err(error) => {
            refuse(&anyhow!("can't list the folder {}: {error}", folder.display()));
            return false;
        }
    };
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut whole = true;
    for entry in entries {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            whole &= walk(&path, files, refuse);
        } else if is_picture(&path) {
            files.push(path);
        }
    }
    whole
}

fn is_picture(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)) && path.is_file()
}
