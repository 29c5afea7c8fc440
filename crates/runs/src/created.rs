use crate::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use towers_options::Message;

/// The files and folders that a run creates before its first step, to be removed if the run is refused.
#[derive(Debug, Default)]
pub(crate) struct Created {
    /// Absolute: some of a run's paths are relative.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Created {
    /// Creates a folder and its parents.
    pub(crate) fn folder(&mut self, folder: &Path) -> Result<()> {
        let absolute = std::path::absolute(folder).map_err(cannot_make(folder))?;
        let above = absolute.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing: Vec<_> = above.take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(&absolute).map_err(cannot_make(folder))?;
        self.folders.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Creates a folder; false if there is one.
    pub(crate) fn new_folder(&mut self, folder: &Path) -> Result<bool> {
        match fs::create_dir(folder).and_then(|()| std::path::absolute(folder)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map_err(cannot_make(folder)).map(|made| {
                self.folders.push(made);
                true
            }),
        }
    }

    /// Whether it has made this folder, and not taken it back.
    pub(crate) fn has_made(&self, folder: &Path) -> bool {
        std::path::absolute(folder).is_ok_and(|folder| self.folders.contains(&folder))
    }

    /// Registers a file that is about to be written.
    pub(crate) fn add_file(&mut self, file: PathBuf) {
        if !file.exists() {
            self.files.push(file);
        }
    }

    /// Removes all paths, except for folders with other contents. A lock goes with its folder.
    pub(crate) fn remove(&mut self, lock: Option<File>, lock_path: &Path) {
        // The run has failed already; a path that can't be removed does no harm.
        for file in self.files.drain(..) {
            let _ = fs::remove_file(file);
        }
        drop(lock);
        if lock_path.parent().is_some_and(|run| self.has_made(run)) {
            let _ = fs::remove_file(lock_path);
        }
        for folder in self.folders.drain(..).rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The file at the path of the folder, or at one of its parents. A link that leads nowhere is one too.
pub(crate) fn in_the_way(folder: &Path) -> Option<&Path> {
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
fn cannot_make(folder: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("can't make the folder {}", shown(folder).display());
    let why = in_the_way(folder).map(|place| match fs::read_link(place) {
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
    fn only_what_was_made_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("runs")).unwrap();
        fs::create_dir(at("mine")).unwrap();
        fs::write(at("mine/config.json"), "before").unwrap();
        let mut created = Created::default();
        created.folder(&at("runs/a/b")).unwrap();
        created.folder(&at("mine")).unwrap();
        created.folder(&at("logs")).unwrap();
        assert!(!created.new_folder(&at("mine")).unwrap());
        for file in ["runs/a/b/config.json", "mine/config.json", "mine/history.csv", "logs/event"] {
            created.add_file(at(file));
            fs::write(at(file), "now").unwrap();
        }
        // A file of another program.
        fs::write(at("logs/notes"), "now").unwrap();
        let lock_path = at("runs/a/b/.lock");
        let lock = File::create(&lock_path).unwrap();
        created.remove(Some(lock), &lock_path);
        assert!(at("runs").is_dir() && !at("runs/a").exists());
        assert!(at("mine/config.json").exists() && !at("mine/history.csv").exists());
        assert!(at("logs/notes").exists() && !at("logs/event").exists());
    }

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
