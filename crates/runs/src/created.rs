use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The files and folders that a run creates before its first step, to be removed if the run is refused.
#[derive(Debug, Default)]
pub(crate) struct Created {
    /// Absolute: some of a run's paths are relative.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Created {
    /// Creates a folder and its parents.
    pub(crate) fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let folder = std::path::absolute(folder)?;
        let above = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing: Vec<_> = above.take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(&folder)?;
        self.folders.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Creates a folder; an existing one is an error.
    pub(crate) fn new_folder(&mut self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        self.folders.push(std::path::absolute(folder)?);
        Ok(())
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
        let run = lock_path.parent().and_then(|run| std::path::absolute(run).ok());
        if run.is_some_and(|run| self.folders.contains(&run)) {
            let _ = fs::remove_file(lock_path);
        }
        for folder in self.folders.drain(..).rev() {
            let _ = fs::remove_dir(folder);
        }
    }
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
        assert!(created.new_folder(&at("mine")).is_err());
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
}
