//! The files and folders that a run creates before its first step, to be removed if the run is refused.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use train::{Observer, StepInfo};

/// Paths that did not exist before the run.
#[derive(Debug, Default)]
pub struct Made {
    /// Absolute: some of a run's paths are relative.
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Made {
    /// Creates a folder and its parents.
    pub fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let folder = std::path::absolute(folder)?;
        let above = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing: Vec<_> = above.take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(&folder)?;
        self.folders.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Creates a folder; an existing one is an error.
    pub fn new_folder(&mut self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        self.folders.push(std::path::absolute(folder)?);
        Ok(())
    }

    /// Registers a file that is about to be written.
    pub fn file(&mut self, file: PathBuf) {
        if !file.exists() {
            self.files.push(file);
        }
    }

    /// Whether the folder did not exist before.
    pub fn has(&self, folder: &Path) -> bool {
        std::path::absolute(folder).is_ok_and(|folder| self.folders.contains(&folder))
    }

    /// Forgets all paths: they belong to another run.
    pub fn forget(&mut self) {
        *self = Made::default();
    }

    /// Removes all paths, except for folders with other contents.
    pub fn take_back(&mut self, held: Option<File>, lock: &Path) {
        // The run has failed already; a path that can't be removed does no harm.
        for file in self.files.drain(..) {
            let _ = fs::remove_file(file);
        }
        drop(held);
        if lock.parent().is_some_and(|run| self.has(run)) {
            let _ = fs::remove_file(lock);
        }
        for folder in self.folders.drain(..).rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Sets a flag at a run's first step. Until then an error may be a refusal.
pub struct Begun(pub Arc<AtomicBool>);

impl Observer for Begun {
    fn on_step(&mut self, _: &StepInfo) -> callbacks::Result<()> {
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
        let mut made = Made::default();
        made.folder(&at("runs/a/b")).unwrap();
        made.folder(&at("mine")).unwrap();
        made.folder(&at("logs")).unwrap();
        assert!(made.new_folder(&at("mine")).is_err() && made.has(&at("runs/a/b")) && !made.has(&at("mine")));
        for file in ["runs/a/b/config.json", "mine/config.json", "mine/history.csv", "logs/event"] {
            made.file(at(file));
            fs::write(at(file), "now").unwrap();
        }
        // A file of another program.
        fs::write(at("logs/notes"), "now").unwrap();
        let lock = at("runs/a/b/.lock");
        let held = File::create(&lock).unwrap();
        made.take_back(Some(held), &lock);
        assert!(at("runs").is_dir() && !at("runs/a").exists());
        assert!(at("mine/config.json").exists() && !at("mine/history.csv").exists());
        assert!(at("logs/notes").exists() && !at("logs/event").exists());
    }
}
