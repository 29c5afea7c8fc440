//! `towers runs`: a table of runs.

use crate::args::{RunsArgs, SortKey};
use crate::error::usage;
use crate::output::{HISTORY_FILE, RUNS, is_locked, shown};
use crate::print;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towers_callbacks::CHECKPOINTS;
use towers_callbacks::{Monitor, Status, read_history};
use towers_trained::MODEL_FILE;

/// The configuration in a run's folder.
const CONFIG: &str = "config.json";

/// The longest values and cells of the table, in characters; `--json` has all of them.
const LONGEST: usize = 60;
const LONGEST_CELL: usize = 400;

/// Keys that differ without telling anybody more.
const HIDDEN: [&str; 1] = ["weights_sha256"];

pub fn run(args: RunsArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder.as_deref().unwrap_or(Path::new(RUNS));
    let mut rows: Vec<Row> = folders(folder)?.iter().map(|run| Row::read(run)).collect();
    if rows.is_empty() {
        print::note(format_args!("there is no run in {}", folder.display()));
    }
    rows.sort_by(|a, b| a.compare(b, args.sort));
    if args.json {
        let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        return print::text(&lines.into_iter().map(|line| line + "\n").collect::<String>());
    }
    if rows.is_empty() { Ok(ExitCode::SUCCESS) } else { print::lines(table(&rows)) }
}

/// The runs in a folder: itself if it is one, else those of its folders that have a file of a run.
fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let has_files = |path: &Path| {
        [CONFIG, HISTORY_FILE, MODEL_FILE, CHECKPOINTS, Status::FILE]
            .iter()
            .any(|name| path.join(name).exists())
    };
    if has_files(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(usage(format!(
                "there is no folder {}; name the one with your runs",
                folder.display()
            )));
        }
        Err(error) => return Err(towers_train::Error::io("read", folder)(error).into()),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir() && has_files(path)).collect())
}

/// A run, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
struct Row {
    run: String,
    recipe: Option<String>,
    /// The options that differ from the recipe, in the order of the options.
    #[serde(serialize_with = "as_object")]
    changed: Vec<(String, Value)>,
    /// Epochs done.
    epochs: usize,
    /// Epochs of the whole run.
    of: Option<u64>,
    best_val_acc: Option<f64>,
    best_epoch: Option<u64>,
    /// The time of the epochs.
    seconds: f64,
    /// The number of processes that train together.
    processes: Option<usize>,
    started: Option<String>,
    ended: Option<String>,
    end: Option<String>,
    reason: Option<String>,
    /// Why the folder can't be read.
    error: Option<String>,
}

impl Row {
    fn read(run: &Path) -> Self {
        let mut row = Row { run: run.display().to_string(), ..Row::default() };
        let mut errors = Vec::new();
        row.read_config(run).unwrap_or_else(|error| errors.push(error));
        let history = read_history(run).unwrap_or_else(|error| {
            errors.push(error.to_string());
            Vec::new()
        });
        row.epochs = history.len();
        row.seconds = history.iter().fold(0.0, |sum, record| sum + record.seconds);
        let best = Monitor::default().best_of(&history);
        (row.best_val_acc, row.best_epoch) = best.map(|best| (best.metrics["val_acc"], best.epoch)).unzip();
        match Status::read(run) {
            Ok(Some(Status { started, processes, ended, end, reason, .. })) => {
                (row.started, row.ended, row.end, row.reason) = (Some(started), ended, end, reason);
                // Older runs did not record it.
                row.processes = Some(processes).filter(|processes| *processes > 0);
            }
            Ok(None) => {}
            Err(error) => errors.push(error.to_string()),
        }
        if row.end.is_none() {
            row.end = row.guessed_end(run);
        }
        row.error = (!errors.is_empty()).then(|| errors.join("; "));
        row
    }

    /// Reads the file without its checks, so that runs of other versions are listed too.
    fn read_config(&mut self, run: &Path) -> Result<(), String> {
        let path = run.join(CONFIG);
        let refuse = |error: &dyn std::fmt::Display| format!("can't read {}: {error}", path.display());
        let text = towers_files::read_text(&path).map_err(|error| error.to_string())?;
        let config: Value = serde_json::from_str(&text).map_err(|error| refuse(&error))?;
        self.recipe = config["recipe"].as_str().map(str::to_owned);
        self.of = config["epochs"].as_u64();
        for key in config["changed"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let value = key.split('.').fold(&config, |value, part| &value[part]);
            self.changed.push((key.to_owned(), value.clone()));
        }
        Ok(())
    }

    /// How a run without a record of its end stands.
    fn guessed_end(&self, run: &Path) -> Option<String> {
        let is_done = self.of.is_some_and(|of| self.epochs as u64 >= of);
        let end = match self.started {
            _ if is_locked(run) => "running",
            Some(_) => "killed",
            None if is_done => "done",
            None => return None,
        };
        Some(end.to_owned())
    }

    fn compare(&self, other: &Row, key: SortKey) -> Ordering {
        let by_key = match key {
            SortKey::When => self.started.cmp(&other.started),
            SortKey::Run => Ordering::Equal,
            SortKey::Recipe => self.recipe.cmp(&other.recipe),
            SortKey::Epochs => self.epochs.cmp(&other.epochs),
            SortKey::Best => {
                let best = |row: &Row| row.best_val_acc.unwrap_or(f64::NEG_INFINITY);
                best(other).total_cmp(&best(self))
            }
            SortKey::End => self.end.cmp(&other.end),
        };
        by_key.then_with(|| natural(&self.run).cmp(&natural(&other.run)))
    }

    fn cells(&self) -> [String; 9] {
        let none = || "-".to_owned();
        let cut = |text: &Option<String>| text.as_deref().map_or_else(none, |text| shortened(text, LONGEST));
        let epochs = self.of.map_or_else(|| self.epochs.to_string(), |of| format!("{}/{of}", self.epochs));
        let best = self.best_val_acc.zip(self.best_epoch);
        let best = best.map_or_else(none, |(acc, epoch)| format!("{acc:.4} ({epoch})"));
        // `2026-11-26T13:40:00Z` without its seconds.
        let when = self.started.as_deref().and_then(|started| started.get(..16));
        let when = when.map_or_else(none, |when| when.replacen('T', " ", 1));
        let end = match (&self.error, &self.reason) {
            (Some(error), _) => shortened(&format!("unreadable: {error}"), LONGEST_CELL),
            (None, Some(reason)) => format!("{}: {}", cut(&self.end), shortened(reason, LONGEST)),
            (None, None) => cut(&self.end),
        };
        let shown = self.changed.iter().filter(|(key, _)| !HIDDEN.contains(&key.as_str()));
        let changed: Vec<String> =
            shown.map(|(key, value)| format!("{key}={}", shortened(&plain(value), LONGEST))).collect();
        let changed = shortened(&changed.join(" "), LONGEST_CELL);
        let seconds = if self.epochs == 0 { none() } else { format!("{:.0}", self.seconds) };
        let processes = self.processes.map_or_else(none, |number| number.to_string());
        [self.run.clone(), cut(&self.recipe), epochs, best, seconds, processes, when, end, changed]
    }
}

fn as_object<S: Serializer>(changed: &[(String, Value)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(changed.iter().map(|(key, value)| (key, value)))
}

/// A value as a recipe or a flag has it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        // Configurations have absolute paths.
        Value::String(text) if Path::new(text).is_absolute() => shown(Path::new(text)).display().to_string(),
        Value::String(text) => text.clone(),
        // Such as the layers of a network.
        Value::Array(values) if values.iter().any(Value::is_object) => format!("{} tables", values.len()),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string().replace('"', ""),
    }
}

fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
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

/// Lines with aligned columns; the last one may be of any length.
fn table(rows: &[Row]) -> Vec<String> {
    let head = [
        "run",
        "recipe",
        "epochs",
        "best val_acc",
        "seconds",
        "processes",
        "started (UTC)",
        "end",
        "differs from the recipe",
    ];
    let mut cells = vec![head.map(str::to_owned)];
    // Names from outside must not break a line.
    let escaped = |row: &Row| row.cells().map(|cell| towers_callbacks::printable(&cell).replace('\n', " "));
    cells.extend(rows.iter().map(escaped));
    let width = |k: usize| cells.iter().map(|row| row[k].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 9]| {
        // The width of a format is at most 65,535.
        let padded = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| cell.clone() + &" ".repeat(width.saturating_sub(cell.chars().count())));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{natural, plain};
    use serde_json::json;

    #[test]
    fn values_are_short() {
        let values = [json!(null), json!(["a", 2]), json!([{ "class": "Conv2D" }, { "class": "Dense" }])];
        assert_eq!(values.map(|value| plain(&value)), ["none", "a,2", "2 tables"]);
    }

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["runs/quick-10", "runs/quick-2", "runs/a", "runs/quick-2b", "runs/quick"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["runs/a", "runs/quick", "runs/quick-2", "runs/quick-2b", "runs/quick-10"]);
    }
}
