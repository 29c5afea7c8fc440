//! Files and folders outside of a run's folder, which options name.

use crate::created::{Created, in_the_way, shown};
use crate::{Error, Result, RunFolder};
use std::path::{Component, Path};
use towers_callbacks::{Outputs, Outside};
use towers_options::message;

impl RunFolder {
    /// Checks the files and folders outside of the folder that a run will write, before that is created, and makes folders for
    /// them. `before` are the outputs of a run that is resumed.
    ///
    /// # Errors
    /// [`Error::Refused`] for a file in a folder that does not exist; [`Error::Failed`] for a folder that can't be made.
    pub fn prepare(&mut self, outputs: &Outputs, before: Option<&Outputs>) -> Result<()> {
        let (all, before) = (outputs.outside(), before.map_or_else(Vec::new, Outputs::outside));
        if let Some(taken) = all.iter().find(|outside| !outside.is_folder && outside.path.is_dir()) {
            let kind = if taken.key == "plot" { "picture" } else { "file" };
            let path = shown(taken.path);
            let path = path.display();
            return Err(Error::Refused(message!(
                [taken.key],
                " is {path}, but must be a {kind}, not a folder"
            )));
        }
        for outside in all {
            let was_written = before.iter().any(|before| before.path == outside.path);
            make_parent(&outside, &self.path, &mut self.created).map_err(|error| match was_written {
                true => Error::Failed(error.message().and(message!(
                    "; the run wrote there before: name another path, or drop it with ",
                    ["forget_outputs"]
                ))),
                false => error,
            })?;
            if !outside.is_folder {
                self.created.add_file(outside.path.to_owned());
            }
        }
        Ok(())
    }
}

/// Inside of the run's folder, all folders are made.
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
    folder.map_or(Ok(()), |folder| created.folder(folder))
}

/// Refuses a path, given by this option, in a folder that does not exist: creating it would hide a misspelt path.
///
/// # Errors
/// [`Error::Refused`].
pub fn folder_must_exist(option: &'static str, path: &Path) -> Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        // Making it has a better message for this.
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
