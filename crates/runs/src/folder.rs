//! The folder of a run that begins or continues.

use crate::created::Created;
use crate::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use towers_callbacks::{CHECKPOINTS, Observer, Status, StepInfo, shell_word};
use towers_config::{Config, UNREADABLE};
use towers_options::message;
use towers_trained::MODEL_FILE;

/// The folder of runs that are given none.
pub const RUNS: &str = "runs";

/// The lock file in a run's folder.
const LOCK: &str = ".lock";

/// The file in a run's folder with the figures of its epochs.
pub const HISTORY_FILE: &str = "history.csv";

/// The files of a run's folder that are written before the first step.
const BEFORE: [&str; 9] = [
    "config.json",
    UNREADABLE,
    "environment.json",
    Status::FILE,
    HISTORY_FILE,
    "history.jsonl",
    "history-steps.jsonl",
    "curves.svg",
    "curves.png",
];

/// Formats of matplotlib that are not supported: a path with one of these extensions is not meant as a folder.
const OTHER_PICTURES: [&str; 8] = ["eps", "gif", "jpeg", "jpg", "pdf", "ps", "tif", "webp"];

/// The folder of a run that is about to begin or continue. It is locked while this lives: two runs in one folder would
/// overwrite each other.
#[derive(Debug, Default)]
pub struct RunFolder {
    pub(crate) path: PathBuf,
    /// Whether the folder's name is generated, so that any number will do.
    numbered: bool,
    resumed: bool,
    restarted: bool,
    pub(crate) created: Created,
    lock: Option<File>,
    begun: Arc<AtomicBool>,
}

impl RunFolder {
    /// The folder of a new run.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        RunFolder { path: path.into(), ..RunFolder::default() }
    }

    /// The next folder in [`RUNS`] for a new run: named after its recipe, or after its network if that is another one
    /// than the recipe's, and with a number.
    pub fn numbered(config: &Config) -> Self {
        let has_own = config.changed.iter().any(|key| key == "model");
        let name = if has_own { &config.training.model } else { &config.recipe };
        let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let path = Path::new(RUNS).join(format!("{}-1", plain.trim_start_matches('.')));
        RunFolder { numbered: true, ..RunFolder::new(path) }
    }

    /// A new folder among the system's temporary ones, for a run of which nothing is kept: see [`discard`](Self::discard).
    pub fn temporary() -> Self {
        RunFolder { numbered: true, ..RunFolder::new(std::env::temp_dir().join("towers-1")) }
    }

    /// The folder of a run that is resumed.
    pub fn resumed(path: impl Into<PathBuf>) -> Self {
        RunFolder { resumed: true, ..RunFolder::new(path) }
    }

    /// The same folder. If a launcher has started this job before, files without a checkpoint are the job's.
    #[must_use]
    pub fn restarted(self, restarted: bool) -> Self {
        RunFolder { restarted, ..self }
    }

    /// The path. That of a numbered folder is known once it is created.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run in the folder is resumed.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether the files in the folder are continued.
    pub fn continues(&self) -> bool {
        self.resumed || self.restarted
    }

    /// Refuses a format of pictures that is not supported, a folder that holds a trained run, and one with files that
    /// are not those of a run: some may have the names of a run's files, which would replace them.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn check(&self) -> Result<()> {
        self.check_unused()?;
        if self.resumed || self.numbered || is_run(&self.path) {
            return Ok(());
        }
        let names = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.file_name());
        // An empty volume has such a folder.
        let strange = names.filter(|name| !name.to_string_lossy().starts_with('.') && name != "lost+found");
        let Some(file) = strange.min() else { return Ok(()) };
        let (run, file) = (self.path.display(), file.display());
        let new = shell_word(&self.path.join("run").to_string_lossy());
        Err(Error::Refused(message!(
            "{run} is not empty and holds no run, but {file}; name a new folder, such as ",
            ["output"],
            " {new}"
        )))
    }

    /// Files of a run that ended before its first checkpoint can't be resumed, and may be replaced.
    fn check_unused(&self) -> Result<()> {
        if self.resumed {
            return Ok(());
        }
        let run = self.path.display();
        let ending = self.path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        if let Some(ending) = ending.filter(|ending| OTHER_PICTURES.contains(&ending.as_str())) {
            return Err(Error::Refused(message!(
                ["output"],
                " is {run}, but pictures end in .png or .svg, not in .{ending}"
            )));
        }
        let at = |name: &str| self.path.join(name);
        let visible = |entry: fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let checkpoints = fs::read_dir(at(CHECKPOINTS)).is_ok_and(|all| all.flatten().any(visible));
        let epochs = towers_files::read_text(&at(HISTORY_FILE)).is_ok_and(|text| text.lines().count() > 1);
        // Figures alone can't be resumed. A killed job may leave a model without a checkpoint, since the
        // model is written first.
        let has_run = checkpoints || (epochs && holds_network(&self.path)) || at(MODEL_FILE).exists();
        if self.numbered || self.restarted || !has_run {
            return Ok(());
        }
        let words = shell_word(&self.path.to_string_lossy());
        let held = message!("{run} already holds a run; ");
        let resume =
            if checkpoints { message!("resume it by ", ["resume"], " {words}, or ") } else { "".into() };
        Err(Error::Refused(held.and(resume).and(message!("choose another ", ["output"]))))
    }

    /// Creates and locks the folder, and checks again that it is unused: another run may have been faster. A
    /// generated name gets the first unused number.
    ///
    /// # Errors
    /// [`Error::Failed`] if another run has locked it, or it can't be made.
    pub fn create(&mut self) -> Result<()> {
        if self.numbered {
            self.path = self.first_unused()?;
        } else {
            self.created.folder(&self.path)?;
        }
        // An error means that the folder is another run's.
        self.lock = lock(&self.path).inspect_err(|_| self.created = Created::default())?;
        BEFORE.iter().for_each(|file| self.created.add_file(self.path.join(file)));
        self.check_unused()
    }

    /// Creates `RECIPE-N` with the first unused N.
    fn first_unused(&mut self) -> Result<PathBuf> {
        if let Some(place) = self.path.parent() {
            self.created.folder(place)?;
        }
        let name = self.path.to_string_lossy();
        let stem = name.strip_suffix('1').unwrap_or(&name);
        for number in 1_u64.. {
            let run = PathBuf::from(format!("{stem}{number}"));
            if self.created.new_folder(&run)? {
                return Ok(run);
            }
        }
        Err(Error::Failed(message!("there is no number left for {stem}")))
    }

    /// An observer that notes the first step. Until then an error may be a refusal.
    pub fn first_step(&self) -> Box<dyn Observer> {
        Box::new(FirstStep(Arc::clone(&self.begun)))
    }

    /// Removes the files and folders that it has created, if the run has failed before its first step.
    pub fn take_back(&mut self) {
        if !self.begun.load(Ordering::Relaxed) {
            self.created.remove(self.lock.take(), &self.path.join(LOCK));
        }
    }

    /// Removes the folder with all that the run has written there, if this run has made it.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be removed.
    pub fn discard(mut self) -> Result<()> {
        drop(self.lock.take());
        if self.created.has_made(&self.path) {
            fs::remove_dir_all(&self.path).map_err(towers_files::Error::io("remove", &self.path))?;
        }
        Ok(())
    }
}

struct FirstStep(Arc<AtomicBool>);

impl Observer for FirstStep {
    fn on_step(&mut self, _: &StepInfo) -> towers_callbacks::Result<()> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Locks a run's folder until the file is closed, however the process ends. Some network file systems have no
/// locks; then nothing is locked. Not every system can lock a folder, so there is a hidden lock file.
fn lock(run: &Path) -> Result<Option<File>> {
    let path = run.join(LOCK);
    towers_files::check_regular(&path).map_err(towers_files::Error::io("open", &path))?;
    let lock = File::options().create(true).append(true).open(path);
    let Ok(lock) = lock else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            let run = run.display();
            let why =
                message!("another run is writing into {run}; wait for it, or choose another ", ["output"]);
            Err(Error::Failed(why))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether another process is writing into a run's folder.
pub fn is_locked(run: &Path) -> bool {
    let path = run.join(LOCK);
    towers_files::check_regular(&path)
        .and_then(|()| File::open(path))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Whether a folder has the `config.json` of a run. Other programs have such files too, with other keys.
fn is_run(folder: &Path) -> bool {
    let text = towers_files::read_text(&folder.join("config.json")).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    config["recipe"].is_string() && config["model"].is_string() && config["changed"].is_array()
}

/// Whether a folder or one of its subfolders has a file of a network.
fn holds_network(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds_network(&entry.path()),
        _ => entry.path().extension().is_some_and(|ending| ending == "safetensors"),
    })
}

/// The name of a run: that of its folder.
pub fn name_of(run: &Path) -> String {
    let folder = std::path::absolute(run).unwrap_or_else(|_| run.to_owned());
    folder.file_name().map_or_else(|| run.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The most recently modified run in [`RUNS`] that has one of `files`.
///
/// # Errors
/// [`Error::Failed`] if there is none.
pub fn newest(files: &[&str]) -> Result<PathBuf> {
    let runs = fs::read_dir(RUNS).into_iter().flatten().flatten().map(|entry| entry.path());
    let modified = |file: PathBuf| fs::metadata(file).and_then(|about| about.modified()).ok();
    let touched = |run: &PathBuf| files.iter().filter_map(|file| modified(run.join(file))).max();
    let newest = runs.filter_map(|run| Some((touched(&run)?, run))).max();
    let none = || Error::Failed(message!("there is no run in {RUNS}/; name the run's folder"));
    newest.map(|(_, run)| run).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_after_its_recipe_or_its_own_network() {
        let mut config = Config::default();
        assert_eq!(RunFolder::numbered(&config).path(), Path::new("runs/minigooglenet-1"));
        (config.training.model, config.changed) = ("../my net/2".to_owned(), vec!["model".to_owned()]);
        assert_eq!(RunFolder::numbered(&config).path(), Path::new("runs/_my_net_2-1"));
    }
}
