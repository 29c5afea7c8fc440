use crate::{EpochRecord, Error, Flow, Observer, Result, RunInfo, Snapshot, TrainState, metric_names};
use std::path::{Path, PathBuf};
use towers_metrics::ALWAYS;

/// Writes the figures of the epochs to `history.csv` and `history.jsonl` in the run directory.
///
/// Both have `epoch, loss, acc, val_loss, val_acc, lr, seconds, images_per_second`, one line per epoch. Those of
/// [`metrics`](crate::Outputs::metrics) follow `val_acc`; an epoch that lacks one has an empty field.
/// Numbers have the fewest digits that parse to the same number. Values that are not finite are `NaN`, `inf`
/// or `-inf` in the CSV file, and `null` in the other one, since JSON has no such numbers.
///
/// After every epoch both files are replaced as a whole. So a resumed run continues them without the epochs
/// that it repeats, and no line is ever incomplete.
///
/// ```
/// use towers_callbacks::{History, Observer};
///
/// let observer: Box<dyn Observer> = Box::new(History::new("runs/a"));
/// ```
#[derive(Clone, Debug)]
pub struct History {
    csv: PathBuf,
    jsonl: PathBuf,
}

/// The columns before and after those of the metrics.
const FIRST: &str = "epoch";
const LAST: [&str; 3] = ["lr", "seconds", "images_per_second"];

impl History {
    /// The files in a run directory.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        let run_dir = run_dir.as_ref();
        History { csv: run_dir.join("history.csv"), jsonl: run_dir.join("history.jsonl") }
    }

    fn write(&self, history: &[EpochRecord]) -> Result<()> {
        let table = table(history).map_err(|error| Error::io("write", &self.csv)(error.into()))?;
        towers_files::write(&self.csv, &table)?;
        let mut lines = Vec::new();
        for record in history {
            let unfit = |error: serde_json::Error| Error::io("write", &self.jsonl)(error.into());
            serde_json::to_writer(&mut lines, record).map_err(unfit)?;
            lines.push(b'\n');
        }
        Ok(towers_files::write(&self.jsonl, &lines)?)
    }
}

/// The CSV file. `{:?}` is the shortest decimal that parses to the same f64.
fn table(history: &[EpochRecord]) -> csv::Result<Vec<u8>> {
    let mut table = Vec::new();
    let mut writer = csv::Writer::from_writer(&mut table);
    // A run that was resumed with more metrics has them from then on.
    let columns = Vec::from_iter(metric_names(history).into_iter().chain(LAST));
    writer.write_record([FIRST].iter().chain(&columns))?;
    for record in history {
        let figure = |column: &&str| record.get(column).map_or(String::new(), |figure| format!("{figure:?}"));
        writer.write_record(std::iter::once(record.epoch.to_string()).chain(columns.iter().map(figure)))?;
    }
    writer.flush()?;
    drop(writer);
    Ok(table)
}

/// The figures of a run's epochs, from its `history.csv`; empty if the run has not begun.
///
/// # Errors
/// [`Error::File`] if the file can't be read, [`Error::NoHistory`] if it has another format.
pub fn read_history(run: &Path) -> Result<Vec<EpochRecord>> {
    let path = run.join("history.csv");
    let text = match towers_files::read_text(&path) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let refuse = || Error::NoHistory(path.clone());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|_| refuse())?.clone();
    let columns = Vec::from_iter(&header);
    let metrics = metrics_of(&columns).ok_or_else(refuse)?;
    let record = |row: &csv::StringRecord| {
        let field = |place: usize| row.get(place).filter(|field| !field.is_empty());
        let number = |place: usize| field(place)?.parse::<f64>().ok();
        let named = (1..).zip(metrics).filter(|(place, _)| field(*place).is_some());
        let metrics = named.map(|(place, name)| Some((String::from(*name), number(place)?)));
        let [lr, seconds, images_per_second] = [3, 2, 1].map(|from_end| number(columns.len() - from_end));
        Some(EpochRecord {
            epoch: field(0)?.parse().ok()?,
            metrics: metrics.collect::<Option<_>>()?,
            lr: lr?,
            seconds: seconds?,
            images_per_second: images_per_second?,
        })
    };
    reader.records().map(|row| row.ok().as_ref().and_then(record).ok_or_else(refuse)).collect()
}

/// The names of the metrics in a header; `None` if it is not that of a history.
fn metrics_of<'a, 'h>(columns: &'a [&'h str]) -> Option<&'a [&'h str]> {
    let metrics = columns.strip_prefix(&[FIRST])?.strip_suffix(&LAST)?;
    let rest = metrics.strip_prefix(&ALWAYS)?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_new = |place: usize| is_name(metrics[place]) && !metrics[..place].contains(&metrics[place]);
    (ALWAYS.len()..ALWAYS.len() + rest.len()).all(is_new).then_some(metrics)
}

impl Observer for History {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        // A folder that can't be written is reported now, not after the first epoch.
        self.write(&run.state.history)
    }

    fn on_epoch_end(&mut self, _: &EpochRecord, state: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.write(&state.history)?;
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state, unvalidated};
    use std::fs;

    const HEADER: &str = "epoch,loss,acc,val_loss,val_acc,lr,seconds,images_per_second\n";

    fn read(folder: &Path) -> (String, String) {
        let read = |name| fs::read_to_string(folder.join(name)).unwrap();
        (read("history.csv"), read("history.jsonl"))
    }

    #[test]
    fn both_files_hold_every_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = folder.path().join("runs/a");
        let mut observer = History::new(&run_dir);
        let (epochs, start) = (2, state(vec![]));
        observer.on_begin(&run(epochs, &start)).unwrap();
        assert_eq!(read(&run_dir), (HEADER.to_owned(), String::new()));

        let mut state = state(vec![record(1, [1.0 / 3.0, 0.5, 2.25, 0.1])]);
        observer.on_epoch_end(&state.history[0], &state, &Fake(0.0)).unwrap();
        state.history.push(EpochRecord { lr: 1e-7, ..record(2, [f64::NAN, 1.0, f64::INFINITY, 0.0]) });
        observer.on_epoch_end(&state.history[1], &state, &Fake(0.0)).unwrap();
        let (csv, jsonl) = read(&run_dir);
        let read_back = format!("{:?}", read_history(&run_dir).unwrap());
        assert_eq!(read_back, format!("{:?}", state.history), "NaN has no equal, but a name");
        let rows = "1,0.3333333333333333,0.5,2.25,0.1,0.005,63.2,791.5\n2,NaN,1.0,inf,0.0,1e-7,63.2,791.5\n";
        assert_eq!(csv, format!("{HEADER}{rows}"));
        let mut lines = jsonl.lines();
        let first = "{\"epoch\":1,\"loss\":0.3333333333333333,\"acc\":0.5,\"val_loss\":2.25,\"val_acc\":0.1,\
                     \"lr\":0.005,\"seconds\":63.2,\"images_per_second\":791.5}";
        assert_eq!(lines.next(), Some(first));
        let second: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert!(second["loss"].is_null() && second["val_loss"].is_null());
        assert_eq!(second["lr"].as_f64(), Some(1e-7));
        assert!(jsonl.ends_with('\n') && lines.next().is_none());
        assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn a_resume_takes_back_what_it_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let history: Vec<_> = (1..=5).map(|epoch| record(epoch, [1.0, 0.5, 1.0, 0.5])).collect();
        let (epochs, five, three) = (9, state(history.clone()), state(history[..3].to_vec()));
        let mut observer = History::new(folder.path());
        observer.on_begin(&run(epochs, &five)).unwrap();
        assert_eq!(read(folder.path()).0.lines().count(), 6);
        observer.on_begin(&run(epochs, &three)).unwrap();
        assert_eq!(read(folder.path()).0.lines().count(), 4);
        assert_eq!(read(folder.path()).1.lines().count(), 3);
    }

    #[test]
    fn more_metrics_are_more_columns() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = vec![record(1, [1.0, 0.5, 1.0, 0.5]), record(2, [0.5; 4])];
        history[1].metrics.set("val_f1", 0.25);
        let mut observer = History::new(folder.path());
        observer.on_begin(&run(9, &state(history.clone()))).unwrap();
        let (csv, jsonl) = read(folder.path());
        let rows = "1,1.0,0.5,1.0,0.5,,0.005,63.2,791.5\n2,0.5,0.5,0.5,0.5,0.25,0.005,63.2,791.5\n";
        assert_eq!(csv, HEADER.replace("val_acc", "val_acc,val_f1") + rows);
        assert_eq!(read_history(folder.path()).unwrap(), history);
        let lines = jsonl.lines().map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(lines.collect::<Vec<EpochRecord>>(), history);
    }

    #[test]
    fn an_epoch_without_validation_has_empty_fields() {
        let folder = tempfile::tempdir().unwrap();
        let history = vec![unvalidated(1, 1.0, 0.5), record(2, [0.5; 4])];
        let mut observer = History::new(folder.path());
        observer.on_begin(&run(9, &state(history.clone()))).unwrap();
        let rows = "1,1.0,0.5,,,0.005,63.2,791.5\n2,0.5,0.5,0.5,0.5,0.005,63.2,791.5\n";
        assert_eq!(read(folder.path()).0, format!("{HEADER}{rows}"));
        assert_eq!(read_history(folder.path()).unwrap(), history);
    }

    #[test]
    fn other_tables_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for text in [
            "epoch,loss\n1,2.0\n".to_owned(),
            HEADER.replace("val_acc", "val_acc,val_acc"),
            HEADER.replace("val_acc", "val_acc,<b>"),
            HEADER.replace(",lr", ""),
            HEADER.to_owned() + "1,0.5\n",
            HEADER.to_owned() + "1,a,0.5,1.0,0.5,0.1,1.0,1.0\n",
            HEADER.to_owned() + "1,0.5,0.5,1.0,0.5,,1.0,1.0\n",
        ] {
            fs::write(folder.path().join("history.csv"), &text).unwrap();
            assert!(matches!(read_history(folder.path()), Err(Error::NoHistory(_))), "{text}");
        }
    }
}
