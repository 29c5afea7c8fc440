use crate::callbacks::repr;
use crate::{EpochRecord, Error, Flow, Observer, Result, RunInfo, Snapshot, TrainState};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// Writes the epochs' figures to a CSV file as Keras' `CSVLogger` does: its column names in its order, epochs from 0.
///
/// Without `append` a run begins the file anew; a resumed one writes the epochs done before into it first. With `append` the epochs
/// are added to what is there, below one header; those that a resumed run does again take the place of its own rows behind the last
/// epoch that it kept. `history.csv` of the run's folder is written in any case, by
/// [`History`](super::History).
///
/// ```
/// use train::observers::CsvLogger;
///
/// let observer: Box<dyn train::Observer> = Box::new(CsvLogger::new("log.csv").separator(';').append(true));
/// ```
#[derive(Debug)]
pub struct CsvLogger {
    path: PathBuf,
    separator: char,
    append: bool,
    file: Option<File>,
}

/// Keras sorts them.
const COLUMNS: [&str; 6] = ["epoch", "accuracy", "learning_rate", "loss", "val_accuracy", "val_loss"];

impl CsvLogger {
    /// Into this file, with commas, begun anew.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        CsvLogger { path: path.into(), separator: ',', append: false, file: None }
    }

    /// What stands between the figures of a line.
    pub fn separator(self, separator: char) -> Self {
        CsvLogger { separator, ..self }
    }

    /// Whether lines are added to a file that is there.
    pub fn append(self, append: bool) -> Self {
        CsvLogger { append, ..self }
    }

    fn write<'a>(&mut self, fields: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let fields: Vec<&str> = fields.into_iter().collect();
        // One write a line: whoever reads along sees whole ones. Python's csv ends them like this.
        let line = fields.join(self.separator.encode_utf8(&mut [0; 4])) + "\r\n";
        file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))
    }

    fn record(&mut self, record: &EpochRecord) -> Result<()> {
        self.write(row(record).iter().map(String::as_str))
    }

    /// Takes away the rows at the file's end of the epochs behind those that are `done`: the run does them again. They are its own if
    /// they stand behind the row of the last epoch done.
    fn take_back(&self, done: &[EpochRecord]) -> Result<()> {
        let Some(last) = done.last() else { return Ok(()) };
        let Ok(text) = fs::read_to_string(&self.path) else { return Ok(()) };
        let kept = row(last).join(self.separator.encode_utf8(&mut [0; 4])) + "\r\n";
        let ends = text.match_indices(&kept).filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'));
        let Some(end) = ends.last().map(|(at, _)| at + kept.len()) else { return Ok(()) };
        let epoch = |row: &str| row.split(self.separator).next()?.parse::<u64>().ok();
        if text[end..].lines().map(epoch).eq((last.epoch..).map(Some).take(text[end..].lines().count())) {
            let file = OpenOptions::new().write(true).open(&self.path);
            file.and_then(|file| file.set_len(end as u64)).map_err(Error::io("write", &self.path))?;
        }
        Ok(())
    }

    fn has_a_header(&self) -> bool {
        let first = |file| BufReader::new(file).split(b'\n').next();
        self.append && File::open(&self.path).is_ok_and(|file| first(file).is_some())
    }
}

/// The fields of an epoch.
fn row(record: &EpochRecord) -> Vec<String> {
    let EpochRecord { epoch, loss, acc, val_loss, val_acc, lr, .. } = *record;
    let figures = [acc, lr, loss, val_acc, val_loss].map(repr);
    std::iter::once(epoch.saturating_sub(1).to_string()).chain(figures).collect()
}

impl Observer for CsvLogger {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map(fs::create_dir_all).transpose().map_err(Error::io("create the folder of", &self.path))?;
        let begun = self.has_a_header();
        if begun {
            self.take_back(&run.state.history)?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).write(true).append(self.append).truncate(!self.append);
        self.file = Some(options.open(&self.path).map_err(Error::io("write", &self.path))?);
        if !begun {
            self.write(COLUMNS)?;
        }
        // What is added to has the epochs before already; what is gone gets them again.
        let before = if begun { &[] } else { run.state.history.as_slice() };
        before.iter().try_for_each(|record| self.record(record))
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.record(record)?;
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, config, record, run, state};
    use super::*;

    const HEADER: &str = "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\r\n";

    /// Runs an epoch after those of `before`, and reads the file.
    fn log(observer: CsvLogger, before: u64) -> String {
        let mut observer = observer;
        let (config, start) =
            (config(9), state((1..=before).map(|k| record(k, [1.0, 0.5, 2.0, 0.25])).collect()));
        observer.on_begin(&run(&config, &start)).unwrap();
        let next = record(before + 1, [1e-7, 1.0, f64::NAN, 0.0]);
        observer.on_epoch_end(&next, &start, &Fake(0.0)).unwrap();
        fs::read_to_string(&observer.path).unwrap()
    }

    /// `tests/golden/csv_logger.py` had Keras write it.
    #[test]
    fn lines_are_keras() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log.csv");
        let log = |observer: CsvLogger, records: &[EpochRecord]| {
            let mut observer = observer.separator(';');
            let (config, start) = (config(9), state(vec![]));
            observer.on_begin(&run(&config, &start)).unwrap();
            for record in records {
                observer.on_epoch_end(record, &start, &Fake(0.0)).unwrap();
            }
        };
        let first = EpochRecord { lr: 0.01, ..record(1, [2.25, 0.125, 2.0, 0.25]) };
        let second = EpochRecord { lr: 1e-5, ..record(2, [1.0 / 3.0, 0.5, f64::NAN, 0.1]) };
        let third = EpochRecord { lr: 1e16, ..record(3, [1e-7, 1.0, f64::INFINITY, 0.0]) };
        log(CsvLogger::new(&file), &[first, second]);
        log(CsvLogger::new(&file).append(true), &[third]);
        // Git may have changed the ends of the lines.
        let expected = include_str!("../../../../tests/golden/csv_logger.csv").replace("\r\n", "\n");
        assert_eq!(fs::read_to_string(file).unwrap(), expected.replace('\n', "\r\n"));
    }

    /// A run was cut off when two rows more were written than checkpoints.
    #[test]
    fn epochs_that_are_done_again_are_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let logger = || CsvLogger::new(&file).append(true);
        let all: Vec<EpochRecord> = (1..=4).map(|k| record(k, [1.0 / k as f64, 0.5, 2.0, 0.25])).collect();
        let go = |from: usize, to: usize| {
            let (mut observer, config) = (logger(), config(9));
            observer.on_begin(&run(&config, &state(all[..from].to_vec()))).unwrap();
            for record in &all[from..to] {
                observer.on_epoch_end(record, &state(vec![]), &Fake(0.0)).unwrap();
            }
            fs::read_to_string(&file).unwrap()
        };
        // Rows of another run stand before and behind: only what is certainly this one's is taken back.
        let before = go(0, 4);
        let cut_off = go(0, 4);
        assert_eq!(go(2, 4), cut_off);
        assert_eq!(go(4, 4), cut_off);
        let others = go(0, 1);
        assert!(others.starts_with(&cut_off) && others.len() > cut_off.len() && cut_off.starts_with(&before));
        assert_eq!(go(2, 2), others, "another run's rows are behind");
    }

    #[test]
    fn a_file_is_begun_anew_or_added_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logs/a.csv");
        let first = format!("{HEADER}0,1.0,0.005,1e-07,0.0,nan\r\n");
        assert_eq!(log(CsvLogger::new(&file), 0), first);
        assert_eq!(log(CsvLogger::new(&file), 0), first, "begun anew");
        let second = "1,1.0,0.005,1e-07,0.0,nan\r\n";
        assert_eq!(log(CsvLogger::new(&file).append(true), 1), format!("{first}{second}"));
        let resumed = format!("{HEADER}0,0.5,0.005,1.0,0.25,2.0\r\n{second}");
        assert_eq!(log(CsvLogger::new(&file), 1), resumed);
        fs::remove_file(&file).unwrap();
        assert_eq!(log(CsvLogger::new(&file).append(true), 1), resumed, "the file was gone");
        let other = folder.path().join("b.csv");
        assert_eq!(log(CsvLogger::new(&other).append(true).separator(';'), 0), first.replace(',', ";"));
    }
}
