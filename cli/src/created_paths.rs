//! The files and folders that a run creates before its first step, to be removed if the run is refused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use towers_callbacks::StepInfo;
use towers_train::Observer;

/// Paths that did not exist before the run.
#[derive(Debug, Default)]
pub struct CreatedPaths {
    /// Absolute: some of a run's paths are relative.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl CreatedPaths {
    /// Creates a folder and its parents.
    pub fn create_folder(&mut self, folder: &Path) -> io::Result<()> {
        let folder = std::path::absolute(folder)?;
        let above = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing: Vec<_> = above.take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(&folder)?;
        self.folders.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Creates a folder; an existing one is an error.
    pub fn create_new_folder(&mut self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        self.folders.push(std::path::absolute(folder)?);
        Ok(())
    }

    /// Registers a file that is about to be written.
    pub fn add_file(&mut self, file: PathBuf) {
        if !file.exists() {
            self.files.push(file);
        }
    }

    /// Whether the folder did not exist before.
    pub fn contains(&self, folder: &Path) -> bool {
        std::path::absolute(folder).is_ok_and(|folder| self.folders.contains(&folder))
    }

    /// Forgets all paths: they belong to another run.
    pub fn forget(&mut self) {
        *self = CreatedPaths::default();
    }

    /// Removes all paths, except for folders with other contents.
    pub fn remove(&mut self, lock: Option<File>, lock_path: &Path) {
        // The run has failed already; a path that can't be removed does no harm.
        for file in self.files.drain(..) {
            let _ = fs::remove_file(file);
        }
        drop(lock);
        if lock_path.parent().is_some_and(|run| self.contains(run)) {
            let _ = fs::remove_file(lock_path);
        }
        for folder in self.folders.drain(..).rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Sets a flag at a run's first step. Until then an error may be a refusal.
pub struct FirstStepFlag(pub Arc<AtomicBool>);

impl Observer for FirstStepFlag {
    fn on_step(&mut self, _: &StepInfo) -> towers_callbacks::Result<()> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
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
        let mut created = CreatedPaths::default();
        created.create_folder(&at("runs/a/b")).unwrap();
        created.create_folder(&at("mine")).unwrap();
        created.create_folder(&at("logs")).unwrap();
        assert!(
            created.create_new_folder(&at("mine")).is_err()
                && created.contains(&at("runs/a/b"))
                && !created.contains(&at("mine"))
        );
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
