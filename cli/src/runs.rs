//! `towers runs`: a table of runs, or of what differs between some.

use crate::args::RunsArgs;
use crate::picture::format_of;
use crate::print::{self, cut};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towers_callbacks::{aligned, printable};
use towers_report::{RunReport, chart, comparison};
use towers_runs::{RUNS, RunSummary, list, shown};

/// The longest values and cells of the table, in characters; `--json` has all of them.
const LONGEST: usize = 60;
const LONGEST_CELL: usize = 400;

/// The cell of a value that a run lacks.
const NONE: &str = "-";

const HEAD: [&str; 9] = [
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

/// Keys that differ without telling anybody more.
const HIDDEN: [&str; 1] = ["weights_sha256"];

pub fn run(args: RunsArgs) -> anyhow::Result<ExitCode> {
    if !args.compare.is_empty() {
        return compare(&args.compare, args.picture.as_deref());
    }
    let folder = args.folder.as_deref().unwrap_or(Path::new(RUNS));
    let runs = list(folder, args.sort)?;
    if runs.is_empty() {
        print::note(format_args!("there is no run in {}", folder.display()));
    }
    if args.json {
        let lines = runs.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        return print::text(&lines.into_iter().map(|line| line + "\n").collect::<String>());
    }
    if runs.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    table([HEAD.map(str::to_owned)].into_iter().chain(runs.iter().map(cells)))
}

/// Prints rows of words. Names from outside must not break a line.
fn table(rows: impl Iterator<Item = impl IntoIterator<Item = String>>) -> anyhow::Result<ExitCode> {
    let escaped = |cell: String| printable(&cell).replace('\n', " ");
    let rows: Vec<Vec<String>> = rows.map(|row| row.into_iter().map(escaped).collect()).collect();
    print::text(&aligned(&rows, usize::MAX))
}

/// Prints a column a run: the cells of the table of runs, then what differs. Writes their curves into a picture.
fn compare(runs: &[PathBuf], picture: Option<&Path>) -> anyhow::Result<ExitCode> {
    let picture = picture.map(|file| Ok::<_, anyhow::Error>((file, format_of("picture", file)?)));
    let picture = picture.transpose()?;
    let name = |run: &PathBuf| run.display().to_string();
    let reports = runs.iter().map(|run| RunReport::read(run, name(run))).collect::<Result<Vec<_>, _>>()?;
    let columns: Vec<_> = runs.iter().map(|run| cells(&RunSummary::read(run))).collect();
    // The differences from the recipe are among the others.
    let rows = (0..HEAD.len() - 1).map(|k| {
        let values = columns.iter().map(|column| column[k].clone());
        [HEAD[k].to_owned()].into_iter().chain(values).collect::<Vec<_>>()
    });
    let differences = comparison(&reports).into_iter().filter(|(key, _)| !HEAD.contains(&key.as_str()));
    let cell =
        |value: Option<String>| value.map_or_else(|| NONE.to_owned(), |text| cut(&text, LONGEST, "..."));
    let differences =
        differences.map(|(key, values)| [key].into_iter().chain(values.into_iter().map(cell)).collect());
    if let Some((file, format)) = picture {
        towers_files::write_output(file, &chart(&reports).picture(format)?)?;
        print::note(format_args!("wrote {}", file.display()));
    }
    table(rows.chain(differences))
}

/// The columns of a run.
fn cells(of: &RunSummary) -> [String; 9] {
    let none = || NONE.to_owned();
    let short = |text: &Option<String>| text.as_deref().map_or_else(none, |text| cut(text, LONGEST, "..."));
    let epochs = of.of.map_or_else(|| of.epochs.to_string(), |all| format!("{}/{all}", of.epochs));
    let best = of.best_val_acc.zip(of.best_epoch);
    let best = best.map_or_else(none, |(acc, epoch)| format!("{acc:.4} ({epoch})"));
    // `2026-11-26T13:40:00Z` without its seconds.
    let when = of.started.as_deref().and_then(|started| started.get(..16));
    let when = when.map_or_else(none, |when| when.replacen('T', " ", 1));
    let end = match (&of.error, &of.reason) {
        (Some(error), _) => cut(&format!("unreadable: {error}"), LONGEST_CELL, "..."),
        (None, Some(reason)) => format!("{}: {}", short(&of.end), cut(reason, LONGEST, "...")),
        (None, None) => short(&of.end),
    };
    let shown = of.changed.iter().filter(|(key, _)| !HIDDEN.contains(&key.as_str()));
    let changed: Vec<String> =
        shown.map(|(key, value)| format!("{key}={}", cut(&plain(value), LONGEST, "..."))).collect();
    let changed = cut(&changed.join(" "), LONGEST_CELL, "...");
    let seconds = if of.epochs == 0 { none() } else { format!("{:.0}", of.seconds) };
    let processes = of.processes.map_or_else(none, |number| number.to_string());
    [of.run.clone(), short(&of.recipe), epochs, best, seconds, processes, when, end, changed]
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

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::json;

    #[test]
    fn values_are_short() {
        let values = [json!(null), json!(["a", 2]), json!([{ "class": "Conv2D" }, { "class": "Dense" }])];
        assert_eq!(values.map(|value| plain(&value)), ["none", "a,2", "2 tables"]);
    }
}
