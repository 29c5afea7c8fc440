//! A run's recipe, progress and end, from the files of its folder.

use crate::folder::{HISTORY_FILE, is_locked};
use crate::{Error, Result};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use towers_callbacks::{CHECKPOINTS, Monitor, Status, read_history};
use towers_options::message;
use towers_trained::MODEL_FILE;

/// The configuration in a run's folder.
const CONFIG: &str = "config.json";

/// A run. What its files don't say is `None`.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// Its folder.
    pub run: String,
    /// Its recipe.
    pub recipe: Option<String>,
    /// The options that differ from the recipe, in the order of the options.
    #[serde(serialize_with = "as_object")]
    pub changed: Vec<(String, Value)>,
    /// Epochs done.
    pub epochs: usize,
    /// Epochs of the whole run.
    pub of: Option<u64>,
    /// The best validation accuracy, from 0 to 1.
    pub best_val_acc: Option<f64>,
    /// The epoch with that, from 1.
    pub best_epoch: Option<u64>,
    /// The time of the epochs.
    pub seconds: f64,
    /// The number of processes that train together.
    pub processes: Option<usize>,
    /// The time of the start, in UTC: `2026-11-26T13:40:00Z`.
    pub started: Option<String>,
    /// The time of the end.
    pub ended: Option<String>,
    /// How it ended, as [`Status`] has it, or else `running` or `killed`.
    pub end: Option<String>,
    /// Why it was stopped or failed.
    pub reason: Option<String>,
    /// Why the folder can't be read.
    pub error: Option<String>,
}

/// The order of a list of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SortKey {
    /// The time of the start, the newest last.
    When,
    /// The folder.
    Run,
    /// The recipe.
    Recipe,
    /// Epochs done.
    Epochs,
    /// The best validation accuracy, the highest first.
    Best,
    /// How it ended.
    End,
}

impl SortKey {
    /// The names of all, as they are deserialized.
    pub const NAMES: [&str; 6] = ["when", "run", "recipe", "epochs", "best", "end"];
}

/// The runs in a folder: itself if it is one, else those of its folders that have a file of a run.
///
/// # Errors
/// [`Error::Refused`] if there is no folder; [`Error::File`] if it can't be read.
pub fn list(folder: &Path, order: SortKey) -> Result<Vec<RunSummary>> {
    let mut runs: Vec<_> = folders(folder)?.iter().map(|run| RunSummary::read(run)).collect();
    runs.sort_by(|a, b| a.compare(b, order));
    Ok(runs)
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = [CONFIG, HISTORY_FILE, MODEL_FILE, CHECKPOINTS, Status::FILE];
    let is_run = |path: &Path| files.iter().any(|name| path.join(name).exists());
    if is_run(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = fs::read_dir(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let folder = folder.display();
            Error::Refused(message!("there is no folder {folder}; name the one with your runs"))
        }
        _ => towers_files::Error::io("read", folder)(error).into(),
    })?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir() && is_run(path)).collect())
}

impl RunSummary {
    /// Reads the files of a run's folder.
    pub fn read(run: &Path) -> Self {
        let mut summary = RunSummary { run: run.display().to_string(), ..RunSummary::default() };
        let mut errors = Vec::new();
        summary.read_config(run).unwrap_or_else(|error| errors.push(error));
        let history = read_history(run).unwrap_or_else(|error| {
            errors.push(error.to_string());
            Vec::new()
        });
        summary.epochs = history.len();
        summary.seconds = history.iter().fold(0.0, |sum, record| sum + record.seconds);
        let best = Monitor::default().best_of(&history);
        (summary.best_val_acc, summary.best_epoch) =
            best.map(|best| (best.metrics["val_acc"], best.epoch)).unzip();
        match Status::read(run) {
            Ok(Some(Status { started, processes, ended, end, reason, .. })) => {
                (summary.started, summary.ended) = (Some(started), ended);
                (summary.end, summary.reason) = (end, reason);
                // Older runs did not record it.
                summary.processes = Some(processes).filter(|processes| *processes > 0);
            }
            Ok(None) => {}
            Err(error) => errors.push(error.to_string()),
        }
        summary.end = summary.end.take().or_else(|| summary.guessed_end(run).map(str::to_owned));
        summary.error = (!errors.is_empty()).then(|| errors.join("; "));
        summary
    }

    /// Reads the file without its checks, so that runs of other versions are listed too.
    fn read_config(&mut self, run: &Path) -> Result<(), String> {
        let path = run.join(CONFIG);
        let text = towers_files::read_text(&path).map_err(|error| error.to_string())?;
        let config: Value =
            serde_json::from_str(&text).map_err(|error| format!("can't read {}: {error}", path.display()))?;
        self.recipe = config["recipe"].as_str().map(str::to_owned);
        self.of = config["epochs"].as_u64();
        for key in config["changed"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let value = key.split('.').fold(&config, |value, part| &value[part]);
            self.changed.push((key.to_owned(), value.clone()));
        }
        Ok(())
    }

    /// How a run without a record of its end stands.
    fn guessed_end(&self, run: &Path) -> Option<&'static str> {
        let is_done = self.of.is_some_and(|of| self.epochs as u64 >= of);
        match self.started {
            _ if is_locked(run) => Some("running"),
            Some(_) => Some("killed"),
            None => is_done.then_some("done"),
        }
    }

    fn compare(&self, other: &RunSummary, order: SortKey) -> Ordering {
        let by_key = match order {
            SortKey::When => self.started.cmp(&other.started),
            SortKey::Run => Ordering::Equal,
            SortKey::Recipe => self.recipe.cmp(&other.recipe),
            SortKey::Epochs => self.epochs.cmp(&other.epochs),
            SortKey::Best => {
                let best = |run: &RunSummary| run.best_val_acc.unwrap_or(f64::NEG_INFINITY);
                best(other).total_cmp(&best(self))
            }
            SortKey::End => self.end.cmp(&other.end),
        };
        by_key.then_with(|| natural(&self.run).cmp(&natural(&other.run)))
    }
}

fn as_object<S: Serializer>(changed: &[(String, Value)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(changed.iter().map(|(key, value)| (key, value)))
}

/// A name in pieces, of which numbers compare as such: `quick-2` comes before `quick-10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut pieces = vec![(0_u64, String::new())];
    for ch in name.chars() {
        let last = pieces.len() - 1;
        match ch.to_digit(10) {
            Some(digit) if pieces[last].1.is_empty() && last > 0 => {
                pieces[last].0 = pieces[last].0.saturating_mul(10).saturating_add(digit.into());
            }
            Some(digit) => pieces.push((digit.into(), String::new())),
            None => pieces[last].1.push(ch),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["runs/quick-10", "runs/quick-2", "runs/a", "runs/quick-2b", "runs/quick"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["runs/a", "runs/quick", "runs/quick-2", "runs/quick-2b", "runs/quick-10"]);
    }

    #[test]
    fn every_name_is_an_order() {
        for name in SortKey::NAMES {
            serde_json::from_value::<SortKey>(name.into()).unwrap();
        }
    }
}
