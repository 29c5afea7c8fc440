//! Files and folders outside of a run's folder, which options name.

use crate::created::Created;
use crate::{Error, Result};
use std::io;
use std::path::{Component, Path, PathBuf};
use towers_callbacks::{Outputs, Outside};
use towers_options::{Message, message};

/// Checks the parent folders of the outputs outside of the folder `run`, before that is created. Inside of it, creates
/// all folders. `before` are the outputs of a run that is resumed.
pub(crate) fn prepare(
    outputs: &Outputs,
    before: Option<&Outputs>,
    run: &Path,
    created: &mut Created,
) -> Result<()> {
    let (all, before) = (outputs.outside(), before.map_or_else(Vec::new, Outputs::outside));
    if let Some(taken) = all.iter().find(|outside| !outside.is_folder && outside.path.is_dir()) {
        let kind = if taken.key == "plot" { "picture" } else { "file" };
        let path = shown(taken.path);
        let path = path.display();
        return Err(Error::Refused(message!([taken.key], " is {path}, but must be a {kind}, not a folder")));
    }
    for outside in all {
        let was_written = before.iter().any(|before| before.path == outside.path);
        make_parent(&outside, run, created).map_err(|error| match was_written {
            true => Error::Failed(error.message().and(message!(
                "; the run wrote there before: name another path, or drop it with ",
                ["forget_outputs"]
            ))),
            false => error,
        })?;
        if !outside.is_folder {
            created.add_file(outside.path.to_owned());
        }
    }
    Ok(())
}

fn make_parent(place: &Outside<'_>, run: &Path, created: &mut Created) -> Result<()> {
    let is_inside = std::path::absolute(run).is_ok_and(|run| {
        let below = place.path.strip_prefix(run);
        below.is_ok_and(|below| below.components().all(|part| matches!(part, Component::Normal(_))))
    });
    // As Keras does, a folder of logs is made.
    if !is_inside && !place.is_folder {
        folder_must_exist(place.key, place.path)?;
    }
    let folder = if place.is_folder { Some(place.path) } else { place.path.parent() };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| created.folder(folder).map_err(cannot_make(folder)))
}

/// Refuses a path, given by this option, in a folder that does not exist: creating it would hide a misspelt path.
///
/// # Errors
/// [`Error::Refused`].
pub fn folder_must_exist(option: &'static str, path: &Path) -> Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        // `cannot_make` has a better message for this.
        Some(folder) if in_the_way(folder).is_some() => Ok(()),
        Some(folder) => {
            let [path, folder] = [path, folder].map(|path| shown(path).display().to_string());
            Err(Error::Refused(message!(
                [option],
                " is {path}, but the folder {folder} does not exist; make it first, or name another"
            )))
        }
        None => Ok(()),
    }
}

/// The file at the path of the folder, or at one of its parents. A link that leads nowhere is one too.
fn in_the_way(folder: &Path) -> Option<&Path> {
    let is_there = |place: &&Path| place.symlink_metadata().is_ok();
    folder.ancestors().find(is_there).filter(|place| !place.is_dir())
}

/// A path relative to the current folder, as it probably was given: a configuration has absolute paths for files
/// outside of a run's folder.
pub fn shown(path: &Path) -> PathBuf {
    std::env::current_dir().map_or_else(|_| path.to_owned(), |here| shown_from(&here, path))
}

fn shown_from(here: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(here).unwrap_or(path) {
        below if below.as_os_str().is_empty() => PathBuf::from("."),
        below => below.to_owned(),
    }
}

/// The error for a folder that can't be made. The system's reason is left out where a file is in the way.
pub(crate) fn cannot_make(folder: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("can't make the folder {}", shown(folder).display());
    let why = in_the_way(folder).map(|place| match std::fs::read_link(place) {
        Ok(target) if !place.exists() => {
            format!("; {} is a link to {}, which is not there", shown(place).display(), target.display())
        }
        _ if place == folder => ", since it is a file".to_owned(),
        _ => "; there is a file in the way".to_owned(),
    });
    move |error| Error::Failed(Message::from(what + &why.unwrap_or_else(|| format!(": {error}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_from_here() {
        let shown = |path: &str| shown_from(Path::new("/here/a"), Path::new(path));
        for (path, expected) in
            [("/here/a/logs", "logs"), ("/here/a", "."), ("/there/b", "/there/b"), ("logs", "logs")]
        {
            assert_eq!(shown(path), Path::new(expected));
        }
    }
}
