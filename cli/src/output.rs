//! The location of a run's files.

use crate::created_paths::CreatedPaths;
use crate::error::usage;
use crate::print::note;
use crate::spelling::flag_of;
use anyhow::{Context, bail};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Component, Path, PathBuf};
use towers_callbacks::CHECKPOINTS;
use towers_callbacks::{Outside, Status, shell_word};
use towers_config::{Config, UNREADABLE};
use towers_trained::MODEL_FILE;

/// The folder of runs without `--output`.
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

/// A run's folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub run: PathBuf,
    /// Whether the folder's name is generated, so that any number will do.
    pub numbered: bool,
    /// Whether the run in the folder is resumed.
    pub resumed: bool,
    /// Whether a launcher has started this job before: files without a checkpoint are then the job's.
    pub restarted: bool,
}

impl Output {
    /// The output of a new run. `--output` is its folder, unless it is a picture. Other folders are named after the
    /// recipe, or after the network if that is another one than the recipe's.
    pub fn new(output: Option<&Path>, config: &Config) -> Self {
        match output {
            Some(path) if !is_picture(path) => Output { run: path.to_owned(), ..Output::default() },
            _ => {
                let has_own = config.changed.iter().any(|key| key == "model");
                let name = if has_own { &config.training.model } else { &config.recipe };
                let run = Path::new(RUNS).join(format!("{}-1", plain(name)));
                Output { run, numbered: true, ..Output::default() }
            }
        }
    }

    /// Refuses a picture format that is not supported, and a folder that holds a trained run. Files of a run
    /// that ended before its first checkpoint can't be resumed, and may be replaced.
    pub fn check_unused(&self) -> anyhow::Result<()> {
        if self.resumed {
            return Ok(());
        }
        if let Some(ending) = ending(&self.run).filter(|ending| OTHER_PICTURES.contains(&ending.as_str())) {
            let run = self.run.display();
            return Err(usage(format!(
                "--output is {run}, but pictures end in .png or .svg, not in .{ending}"
            )));
        }
        let at = |name: &str| self.run.join(name);
        let visible = |entry: fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let checkpoints = fs::read_dir(at(CHECKPOINTS)).is_ok_and(|all| all.flatten().any(visible));
        let epochs = towers_files::read_text(&at(HISTORY_FILE)).is_ok_and(|text| text.lines().count() > 1);
        // Figures alone can't be resumed. A killed job may leave a model without a checkpoint, since the
        // model is written first.
        let has_run = checkpoints || (epochs && holds_network(&self.run)) || at(MODEL_FILE).exists();
        if !self.numbered && !self.restarted && has_run {
            let run = self.run.display();
            let words = shell_word(&self.run.to_string_lossy());
            let resume =
                if checkpoints { format!("resume it by --resume {words}, or ") } else { String::new() };
            let remedy = format!("{resume}choose another --output");
            return Err(usage(format!("{run} already holds a run; {remedy}")));
        }
        Ok(())
    }

    /// Refuses a folder with files that are not those of a run: some may have the names of a run's files, which
    /// would replace them.
    pub fn check_folder(&self) -> anyhow::Result<()> {
        if self.resumed || self.numbered || is_run(&self.run) {
            return Ok(());
        }
        let names = fs::read_dir(&self.run).into_iter().flatten().flatten().map(|entry| entry.file_name());
        // An empty volume has such a folder.
        let strange = names.filter(|name| !name.to_string_lossy().starts_with('.') && name != "lost+found");
        let Some(file) = strange.min() else { return Ok(()) };
        let (run, file) = (self.run.display(), file.display());
        let new = shell_word(&self.run.join("run").to_string_lossy());
        Err(usage(format!(
            "{run} is not empty and holds no run, but {file}; name a new folder, such as --output {new}"
        )))
    }

    /// Creates the folder, and locks it for as long as the returned file is open: two runs in one folder
    /// would overwrite each other. A generated name gets the first unused number.
    pub fn create(&mut self, created: &mut CreatedPaths) -> anyhow::Result<Option<File>> {
        if self.numbered {
            self.run = self.first_unused(created)?;
        } else {
            created.create_folder(&self.run).map_err(cannot_make(&self.run))?;
        }
        let lock = lock_folder(&self.run).inspect_err(|_| created.forget())?;
        // The files that are written before the first step.
        for file in BEFORE {
            created.add_file(self.run.join(file));
        }
        Ok(lock)
    }

    /// The lock file of the folder.
    pub fn lock_path(&self) -> PathBuf {
        self.run.join(LOCK)
    }

    /// Creates `RECIPE-N` with the first unused N.
    fn first_unused(&self, created: &mut CreatedPaths) -> anyhow::Result<PathBuf> {
        created.create_folder(Path::new(RUNS)).map_err(cannot_make(Path::new(RUNS)))?;
        let name = self.run.to_string_lossy();
        let stem = name.strip_suffix('1').unwrap_or(&name);
        for number in 1_u64.. {
            let run = PathBuf::from(format!("{stem}{number}"));
            match created.create_new_folder(&run) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                new => return new.map_err(cannot_make(&run)).map(|()| run),
            }
        }
        bail!("there is no number left in {RUNS}/")
    }
}

/// A name of a network as the name of a folder.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    name.trim_start_matches('.').to_owned()
}

/// Checks the parent folder of an output outside of the run's folder before the run's folder is created.
/// Inside of the run's folder, creates all folders.
pub fn prepare_outside(place: &Outside<'_>, run: &Path, created: &mut CreatedPaths) -> anyhow::Result<()> {
    let is_inside = std::path::absolute(run).is_ok_and(|run| {
        let below = place.path.strip_prefix(run);
        below.is_ok_and(|below| below.components().all(|part| matches!(part, Component::Normal(_))))
    });
    // As Keras does, a folder of logs is made.
    if !is_inside && !place.is_folder {
        folder_must_exist(&flag_of(place.key), place.path)?;
    }
    let folder = if place.is_folder { Some(place.path) } else { place.path.parent() };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| created.create_folder(folder).map_err(cannot_make(folder)))
}

/// Refuses a path in a folder that does not exist: creating it would hide a misspelt path.
pub fn folder_must_exist(option: &str, path: &Path) -> anyhow::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        // `cannot_make` has a better message for this.
        Some(folder) if in_the_way(folder).is_some() => Ok(()),
        Some(folder) => Err(usage(format!(
            "{option} is {}, but the folder {} does not exist; make it first, or name another",
            shown(path).display(),
            shown(folder).display()
        ))),
        None => Ok(()),
    }
}

/// The file at the path of the folder, or at one of its parents. A link that leads nowhere is one too.
fn in_the_way(folder: &Path) -> Option<&Path> {
    let is_there = |place: &&Path| place.symlink_metadata().is_ok();
    folder.ancestors().find(is_there).filter(|place| !place.is_dir())
}

/// A path relative to the current folder, as it probably was given: the configuration has absolute paths for
/// files outside of a run's folder.
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
fn cannot_make(folder: &Path) -> impl FnOnce(io::Error) -> anyhow::Error {
    let what = format!("can't make the folder {}", shown(folder).display());
    let why = in_the_way(folder).map(|place| match fs::read_link(place) {
        Ok(target) if !place.exists() => {
            format!("; {} is a link to {}, which is not there", shown(place).display(), target.display())
        }
        _ if place == folder => ", since it is a file".to_owned(),
        _ => "; there is a file in the way".to_owned(),
    });
    move |error| match why {
        Some(why) => anyhow::anyhow!("{what}{why}"),
        None => anyhow::Error::from(error).context(what),
    }
}

/// Locks a run's folder until the file is closed, however the process ends. Some network file systems have no
/// locks; then nothing is locked. Not every system can lock a folder, so there is a hidden lock file.
fn lock_folder(run: &Path) -> anyhow::Result<Option<File>> {
    let path = run.join(LOCK);
    towers_files::check_regular(&path).map_err(towers_train::Error::io("open", &path))?;
    let lock = File::options().create(true).append(true).open(path);
    let Ok(lock) = lock else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            bail!("another run is writing into {}; wait for it, or choose another --output", run.display())
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

pub fn is_picture(path: &Path) -> bool {
    ending(path).is_some_and(|ending| ending == "png" || ending == "svg")
}

/// Formats of matplotlib that are not supported: a path with one of these extensions is not meant as a
/// folder.
const OTHER_PICTURES: [&str; 8] = ["eps", "gif", "jpeg", "jpg", "pdf", "ps", "tif", "webp"];

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_string_lossy().to_ascii_lowercase())
}

/// The name of a run: that of its folder.
pub fn run_name(run: &Path) -> String {
    let folder = std::path::absolute(run).unwrap_or_else(|_| run.to_owned());
    folder.file_name().map_or_else(|| run.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The most recently modified run in `runs/` that has one of `files`.
pub fn newest_run(files: &[&str]) -> anyhow::Result<PathBuf> {
    let runs = fs::read_dir(RUNS).into_iter().flatten().flatten().map(|entry| entry.path());
    let modified = |file: PathBuf| fs::metadata(file).and_then(|about| about.modified()).ok();
    let touched = |run: &PathBuf| files.iter().filter_map(|file| modified(run.join(file))).max();
    let newest = runs.filter_map(|run| Some((touched(&run)?, run))).max();
    newest.map(|(_, run)| run).with_context(|| format!("there is no run in {RUNS}/; name the run's folder"))
}

/// The most recently trained run, for commands without a run's name; prints its folder.
pub fn newest_network() -> anyhow::Result<PathBuf> {
    let run = newest_run(&[MODEL_FILE])?;
    note(format_args!("no run is named; taking the newest, {}", run.display()));
    Ok(run)
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

    #[test]
    fn a_picture_or_a_folder() {
        let mut config = Config::default();
        let plot = Output::new(Some(Path::new("out/multi_gpu.PNG")), &config);
        assert_eq!((plot.run, plot.numbered), ("runs/minigooglenet-1".into(), true));
        let folder = Output::new(Some(Path::new("runs/a")), &config);
        (config.training.model, config.changed) = ("../my net/2".to_owned(), vec!["model".to_owned()]);
        assert_eq!(Output::new(None, &config).run, Path::new("runs/_my_net_2-1"));
        assert_eq!(folder, Output { run: "runs/a".into(), ..Output::default() });
    }
}
