use crate::callback::Callback;
use crate::format::repr;
use crate::{
    EpochRecord, Error, Flow, Observer, Outside, Result, Run, RunInfo, Snapshot, TrainState, read_history,
};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use towers_metrics::{ALWAYS, keras_name};
use towers_options::{Kind, Refused, Table, message, options};

options! {
    /// A CSV file of the epochs' figures, as by Keras' `CSVLogger`. [`CsvLogger`] writes it. By default the
    /// path is empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CsvLogOptions {
        ["Callbacks"]
        /// Write the metrics of every epoch to FILE, as Keras' CSVLogger does
        path: PathBuf = PathBuf::new(), Kind::form(towers_options::path, "a path in quotes"), "--csv-log FILE";
        /// The column separator of --csv-log; by default a comma
        separator: char = ',', SEPARATOR, "--csv-separator CHAR";
        /// Append to the file of --csv-log instead of replacing it; a resumed run always appends
        append: bool = false, Kind::Switch, "--csv-append";
    }
}

impl Callback for CsvLogOptions {
    const TABLE: Table = Table {
        key: "csv_log",
        options: CsvLogOptions::OPTIONS,
        begins: Some(|| json!(CsvLogOptions::default())),
    };

    fn outside(&self) -> Option<Outside<'_>> {
        Some(Outside { key: "csv_log.path", path: &self.path, is_folder: false })
    }

    fn outside_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn build(&self, run: &Run<'_>) -> Result<Box<dyn Observer>> {
        // If the history can't be read, no rows are removed.
        let written = if run.resumed { read_history(run.folder).unwrap_or_default() } else { Vec::new() };
        Ok(Box::new(CsvLogger::new(self.clone()).written(written)))
    }
}

const SEPARATOR: Kind = Kind::form(read_separator, "one character that is in no number, such as `;`, or \\t");

fn read_separator(text: &str) -> Result<serde_json::Value, Refused> {
    let mut chars = text.chars();
    let separator = match (chars.next(), chars.next()) {
        (Some('\\'), Some('t')) => Some('\t'),
        (Some(separator), None) => Some(separator),
        _ => None,
    };
    let in_numbers = |separator: &char| separator.is_alphanumeric() || "+-.\r\n\"".contains(*separator);
    let separator = separator.filter(|separator| !in_numbers(separator));
    separator.map(|separator| json!(separator)).ok_or_else(|| Refused::MustBe(SEPARATOR.accepted().into()))
}

/// Writes the epochs' figures to a CSV file as Keras' `CSVLogger` does: its column names in its order, epochs from 0.
///
/// Without `append` a new run replaces the file; with it, the epochs are appended below one header. A file with
/// another header is refused. A resumed run always appends, and keeps the rows of other runs. It removes its rows of epochs that it repeats (see
/// [`written`](CsvLogger::written)), and adds missing rows of previous epochs. `history.csv` in the run's
/// folder is written in any case, by [`History`](crate::History).
///
/// ```
/// use towers_callbacks::{CsvLogOptions, CsvLogger};
///
/// let observer = CsvLogger::new(CsvLogOptions { path: "log.csv".into(), separator: ';', append: true });
/// ```
#[derive(Debug)]
pub struct CsvLogger {
    options: CsvLogOptions,
    /// The figures of a row after the epoch: Keras' names, in Keras' order, which is that of the alphabet.
    columns: Vec<String>,
    written: Vec<EpochRecord>,
    file: Option<File>,
}

impl CsvLogger {
    /// A logger with these options.
    pub fn new(options: CsvLogOptions) -> Self {
        CsvLogger { options, columns: columns(&ALWAYS), written: Vec::new(), file: None }
    }

    /// The epochs that the run had written before it was interrupted, as
    /// [`read_history`](crate::read_history) returns them. Rows after its checkpoint are removed.
    pub fn written(self, history: Vec<EpochRecord>) -> Self {
        CsvLogger { written: history, ..self }
    }

    /// The rows of these epochs.
    fn rows<'a>(&self, records: impl IntoIterator<Item = &'a EpochRecord>) -> Vec<String> {
        records.into_iter().map(|record| self.row(&self.fields(record))).collect()
    }

    fn row(&self, fields: &[String]) -> String {
        fields.join(self.options.separator.encode_utf8(&mut [0; 4]))
    }

    fn write(&mut self, rows: &[String]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        // One write per line, so that concurrent readers see whole lines. The line ends are those of Python's
        // csv.
        let mut lines = rows.iter().map(|row| file.write_all(format!("{row}\r\n").as_bytes()));
        lines.try_for_each(|line| line).map_err(Error::io("write", &self.options.path))
    }

    /// Opens the file, and empties it.
    fn start_new_file(&mut self) -> Result<()> {
        let path = &self.options.path;
        self.file = Some(File::create(path).map_err(Error::io("write", path))?);
        self.write(&[self.header()])
    }

    /// Opens the file, to append rows after the epochs that are `done`.
    fn append_after(&mut self, done: &[EpochRecord]) -> Result<()> {
        let behind = done.last().map_or(0, |last| last.epoch);
        let (done, undone) =
            (self.rows(done), self.rows(self.written.iter().filter(|record| record.epoch > behind)));
        // A pipe is not read.
        let path = &self.options.path;
        let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
        let read = || fs::read_to_string(path).map_err(Error::io("read", path));
        let text = if is_file { read()? } else { String::new() };
        let remedy = message!("name another file, or give ", ["csv_log.separator"], " as there");
        Error::unless_log(path, &text, &self.header(), remedy)?;
        let Remaining { text: left, has_done } = remove_rows(&text, &done, &undone);
        let io = |error| Error::io("write", path)(error);
        if left != text {
            replace_end(path, &text, &left).map_err(io)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(io)?;
        let is_empty = file.metadata().map_err(io)?.len() == 0;
        if !left.is_empty() && !left.ends_with('\n') {
            file.write_all(b"\r\n").map_err(io)?;
        }
        self.file = Some(file);
        if is_empty || !is_file {
            self.write(&[self.header()])?;
        }
        if has_done { Ok(()) } else { self.write(&done) }
    }

    fn header(&self) -> String {
        self.row(&[&["epoch".to_owned()], &self.columns[..]].concat())
    }

    /// The fields of an epoch.
    fn fields(&self, record: &EpochRecord) -> Vec<String> {
        let epoch = record.epoch.saturating_sub(1).to_string();
        let figure = |name: &String| record.get(name).map_or(String::new(), repr);
        std::iter::once(epoch).chain(self.columns.iter().map(figure)).collect()
    }
}

/// The columns after the epoch of a run with these metrics.
fn columns(metrics: &[impl AsRef<str>]) -> Vec<String> {
    let metrics = metrics.iter().map(|name| keras_name(name.as_ref()).into_owned());
    let mut columns = Vec::from_iter(metrics.chain(["learning_rate".to_owned()]));
    columns.sort();
    columns
}

/// The remaining rows of a file.
struct Remaining {
    text: String,
    /// Whether the rows of the finished epochs are in it.
    has_done: bool,
}

/// Removes the `undone` rows of a run from a file. They are in this order after the last row of `done`, with
/// rows of other runs in between. The last row may be incomplete.
fn remove_rows(text: &str, done: &[String], undone: &[String]) -> Remaining {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is = |line: &&str, row: &str| line.trim_end_matches(['\r', '\n']) == row;
    let last = |lines: &[&str], row: &str| lines.iter().rposition(|line| is(line, row));
    let last_done = done.last().and_then(|row| last(&lines, row));
    let first_undone = || undone.first().and_then(|row| last(&lines, row));
    let mut from = last_done.or_else(first_undone).unwrap_or(lines.len());
    for row in undone {
        if let Some(at) = lines[from..].iter().position(|line| is(line, row)) {
            from += at;
            lines.remove(from);
        }
    }
    lines.pop_if(|line| !line.ends_with('\n') && undone.iter().any(|row| row.starts_with(*line)));
    Remaining { text: lines.concat(), has_done: done.is_empty() || last_done.is_some() }
}

/// Replaces the end of a file in place: another run may be appending to it.
pub(crate) fn replace_end(path: &Path, before: &str, after: &str) -> io::Result<()> {
    let same = before.bytes().zip(after.bytes()).take_while(|(before, after)| before == after).count();
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(same as u64))?;
    file.write_all(&after.as_bytes()[same..])?;
    file.set_len(after.len() as u64)
}

impl Observer for CsvLogger {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        self.columns = columns(&run.metrics);
        let CsvLogOptions { path, append, .. } = &self.options;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map(fs::create_dir_all).transpose().map_err(Error::io("create the folder of", path))?;
        let is_new = run.state.step == 0 && self.written.is_empty();
        if is_new && !append { self.start_new_file() } else { self.append_after(&run.state.history) }
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.write(&self.rows([record]))?;
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state};

    const HEADER: &str = "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\r\n";

    fn logger(path: &Path, append: bool) -> CsvLogger {
        CsvLogger::new(CsvLogOptions { path: path.to_owned(), append, ..CsvLogOptions::default() })
    }

    /// Runs an epoch after those of `before`, and returns the file.
    fn log(observer: CsvLogger, before: u64) -> String {
        let mut observer = observer;
        let (epochs, start) = (9, state((1..=before).map(|k| record(k, [1.0, 0.5, 2.0, 0.25])).collect()));
        observer.on_begin(&run(epochs, &start)).unwrap();
        let next = record(before + 1, [1e-7, 1.0, f64::NAN, 0.0]);
        observer.on_epoch_end(&next, &start, &Fake(0.0)).unwrap();
        fs::read_to_string(&observer.options.path).unwrap()
    }

    /// Keras' output, written by `tests/golden/csv_logger.py`.
    #[test]
    fn lines_are_keras() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log.csv");
        let log = |observer: CsvLogger, records: &[EpochRecord]| {
            let mut observer = observer;
            observer.options.separator = ';';
            let (epochs, start) = (9, state(vec![]));
            observer.on_begin(&run(epochs, &start)).unwrap();
            for record in records {
                observer.on_epoch_end(record, &start, &Fake(0.0)).unwrap();
            }
        };
        let first = EpochRecord { lr: 0.01, ..record(1, [2.25, 0.125, 2.0, 0.25]) };
        let second = EpochRecord { lr: 1e-5, ..record(2, [1.0 / 3.0, 0.5, f64::NAN, 0.1]) };
        let third = EpochRecord { lr: 1e16, ..record(3, [1e-7, 1.0, f64::INFINITY, 0.0]) };
        log(logger(&file, false), &[first, second]);
        log(logger(&file, true), &[third]);
        // Git may have changed the line ends.
        let expected = include_str!("../../../tests/golden/csv_logger.csv").replace("\r\n", "\n");
        assert_eq!(fs::read_to_string(file).unwrap(), expected.replace('\n', "\r\n"));
    }

    /// The rows of four epochs of a run; `figure` distinguishes runs.
    fn epochs(figure: f64) -> Vec<EpochRecord> {
        (1..=4).map(|k| record(k, [figure / k as f64, 0.5, 2.0, 0.25])).collect()
    }

    /// A run with the epochs `all` resumes after the first `from`, up to the first `to`; it had `written`
    /// rows before.
    fn go(observer: CsvLogger, all: &[EpochRecord], from: usize, to: usize, written: usize) -> String {
        let (mut observer, epochs) = (observer.written(all[..written].to_vec()), 9);
        observer.on_begin(&run(epochs, &state(all[..from].to_vec()))).unwrap();
        for record in &all[from..to] {
            observer.on_epoch_end(record, &state(vec![]), &Fake(0.0)).unwrap();
        }
        fs::read_to_string(&observer.options.path).unwrap()
    }

    /// Interrupted runs with more rows than checkpoints.
    #[test]
    fn epochs_that_are_done_again_are_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let (logger, all) = (|| logger(&file, true), epochs(1.0));
        let before = go(logger(), &all, 0, 4, 0);
        let whole = go(logger(), &all, 0, 4, 0);
        assert_eq!(go(logger(), &all, 2, 4, 4), whole);
        assert_eq!(go(logger(), &all, 4, 4, 4), whole);
        // Without a checkpoint it starts again.
        assert_eq!(go(logger(), &all, 0, 4, 4), whole);
        assert_eq!(go(logger(), &all, 0, 0, 4), before);
        // The last row is incomplete.
        let row = |k: usize| logger().rows([&all[k]]).remove(0);
        fs::write(&file, format!("{before}{}\r\n{}", row(0), &row(1)[..9])).unwrap();
        assert_eq!(go(logger(), &all, 0, 4, 2), whole);
        fs::write(&file, format!("{before}{}\r\n{}", row(0), row(1))).unwrap();
        assert_eq!(go(logger(), &all, 1, 4, 2), whole);
        // Another run's row is complete, and stays.
        fs::write(&file, format!("{before}9,0.1")).unwrap();
        assert_eq!(go(logger(), &all, 4, 4, 4), format!("{before}9,0.1\r\n"));
    }

    #[test]
    fn rows_of_other_runs_stay() {
        for append in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("a.csv");
            let own = || logger(&file, append);
            let (mine, others) = (epochs(1.0), epochs(7.0));
            let rows = |all: &[EpochRecord]| {
                own().rows(all).iter().map(|row| format!("{row}\r\n")).collect::<String>()
            };
            go(own(), &mine, 0, 3, 0);
            go(logger(&file, true), &others, 0, 4, 0);
            let both = format!("{HEADER}{}{}{}", rows(&mine[..1]), rows(&others), rows(&mine[1..]));
            assert_eq!(go(own(), &mine, 1, 4, 3), both, "in the midst of the file");
            assert_eq!(go(own(), &mine, 4, 4, 4), both);
            // A new run replaced the file. The rows after those of the first run are not the first one's.
            let anew = go(logger(&file, false), &others, 0, 4, 0);
            assert_eq!(go(own(), &mine, 2, 4, 3), format!("{anew}{}", rows(&mine)));
            let branch = [&mine[..2], &others[2..]].concat();
            go(logger(&file, false), &branch, 0, 4, 0);
            let expected = format!("{HEADER}{}{}", rows(&branch), rows(&mine[2..]));
            assert_eq!(go(own(), &mine, 2, 4, 2), expected);
        }
    }

    #[test]
    fn a_file_is_begun_anew_or_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logs/a.csv");
        let first = format!("{HEADER}0,1.0,0.005,1e-07,0.0,nan\r\n");
        assert_eq!(log(logger(&file, false), 0), first);
        assert_eq!(log(logger(&file, false), 0), first, "begun anew");
        let before = "0,0.5,0.005,1.0,0.25,2.0\r\n";
        let second = "1,1.0,0.005,1e-07,0.0,nan\r\n";
        for append in [true, false] {
            let own = || logger(&file, append);
            fs::write(&file, &first).unwrap();
            assert_eq!(log(own(), 1), format!("{first}{before}{second}"), "what it lacks");
            fs::remove_file(&file).unwrap();
            assert_eq!(log(own(), 1), format!("{HEADER}{before}{second}"), "the file was gone");
            fs::write(&file, format!("{HEADER}{before}")).unwrap();
            assert_eq!(log(own(), 1), format!("{HEADER}{before}{second}"));
        }
        // Other columns, or another separator.
        for text in ["epoch,loss\n", &first.replace(',', ";")] {
            fs::write(&file, text).unwrap();
            for done in [0, 1] {
                let start = state((1..=done).map(|k| record(k, [1.0, 0.5, 2.0, 0.25])).collect());
                let error = logger(&file, true).on_begin(&run(9, &start)).unwrap_err().to_string();
                assert!(
                    error.contains("its first line is `epoch") && error.contains("`csv_log.separator`"),
                    "{error}"
                );
                assert_eq!(fs::read_to_string(&file).unwrap(), text);
            }
        }
        fs::write(&file, b"\xff").unwrap();
        assert!(logger(&file, true).on_begin(&run(9, &state(vec![]))).is_err(), "it is no text");
        let other = folder.path().join("b.csv");
        let options = CsvLogOptions { path: other, separator: ';', append: true };
        assert_eq!(log(CsvLogger::new(options), 0), first.replace(',', ";"));
    }
}
