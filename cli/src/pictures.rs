//! The pictures that a command line names.

use crate::print::note;
use anyhow::anyhow;
use std::path::{Path, PathBuf};
use train::cifar::Progress;
use train::cifar::folder::{ENDINGS, Found};

/// The file itself, whatever its name; for a folder, the pictures in it and below, and a note on the other
/// files. Calls `refuse` for folders that can't be read, and continues.
pub fn named(path: &Path, refuse: &mut impl FnMut(&anyhow::Error)) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Found { pictures, others, unlisted } = Found::below(path);
    if pictures.is_empty() && unlisted.is_empty() {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        refuse(&anyhow!("{}: the folder has no picture: {endings}", path.display()));
    }
    for error in unlisted {
        refuse(&train::Error::from(error).into());
    }
    if let Some(first) = others.first() {
        note(Progress::PassedOver { files: others.len(), first });
    }
    pictures
}
