use crate::callback::Callback;
use crate::csv_logger::replace_end;
use crate::{Error, Observer, Outside, Result, Run, RunInfo, StepInfo};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use towers_options::{Kind, Table, message, options};

options! {
    /// A CSV file of the learning rate of every step, as Lightning's `LearningRateMonitor` logs it.
    /// [`LearningRateLogger`] writes it. By default the path is empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LrLogOptions {
        ["Callbacks"]
        /// Write the learning rate of every step to FILE as CSV, with the columns step (from 1), epoch (from 1) and lr
        path: PathBuf = PathBuf::new(), Kind::form(towers_options::path, "a path in quotes"), "--lr-log FILE";
        /// With --lr-log, write every Nth step only
        every: u64 = 1, Kind::Whole(1), "--lr-log-every N";
    }
}

impl Callback for LrLogOptions {
    const TABLE: Table = Table {
        key: "lr_log",
        options: LrLogOptions::OPTIONS,
        begins: Some(|| json!(LrLogOptions::default())),
    };

    fn outside(&self) -> Option<Outside<'_>> {
        Some(Outside { key: "lr_log.path", path: &self.path, is_folder: false })
    }

    fn outside_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn build(&self, _: &Run<'_>) -> Result<Box<dyn Observer>> {
        Ok(Box::new(LearningRateLogger::new(self.clone())))
    }
}

/// Writes the learning rate of steps to a CSV file with the columns `step`, `epoch` and `lr`. A resumed run
/// removes the rows of steps that it repeats, and appends.
///
/// ```
/// use towers_callbacks::{LearningRateLogger, LrLogOptions};
///
/// let observer = LearningRateLogger::new(LrLogOptions { path: "lr.csv".into(), every: 10 });
/// ```
#[derive(Debug)]
pub struct LearningRateLogger {
    options: LrLogOptions,
    /// Steps of the whole run.
    steps: u64,
    file: Option<File>,
}

const HEADER: &str = "step,epoch,lr";

impl LearningRateLogger {
    /// A logger with these options.
    pub fn new(options: LrLogOptions) -> Self {
        LearningRateLogger { options, steps: 0, file: None }
    }
}

/// The header and the whole rows up to a step.
fn up_to(text: &str, step: u64) -> String {
    let of = |line: &str| line.split(',').next().and_then(|number| number.parse::<u64>().ok());
    let rows = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let rows = rows.filter(|line| of(line).is_some_and(|number| number <= step));
    rows.fold(format!("{HEADER}\n"), |all, row| all + row)
}

impl Observer for LearningRateLogger {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let path = &self.options.path;
        self.steps = run.state.step;
        let is_special = fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir());
        // A pipe is not read, and a new run replaces the file.
        let text = if self.steps == 0 || is_special { None } else { Some(fs::read_to_string(path)) };
        let before = match text {
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => None,
            text => text.transpose().map_err(Error::io("read", path))?,
        };
        let file = match before {
            Some(text) => {
                Error::unless_log(path, &text, HEADER, message!("name another file for ", ["lr_log.path"]))?;
                replace_end(path, &text, &up_to(&text, self.steps)).map_err(Error::io("write", path))?;
                OpenOptions::new().append(true).open(path)
            }
            None => File::create(path)
                .and_then(|mut file| file.write_all(format!("{HEADER}\n").as_bytes()).map(|()| file)),
        };
        self.file = Some(file.map_err(Error::io("write", path))?);
        Ok(())
    }

    fn on_step(&mut self, step: &StepInfo) -> Result<()> {
        // An epoch that is resumed for its evaluation has no step.
        self.steps += 1;
        let is_due = self.steps.is_multiple_of(self.options.every);
        let Some(file) = self.file.as_mut().filter(|_| is_due) else { return Ok(()) };
        let line = format!("{},{},{:?}\n", self.steps, step.epoch, step.lr);
        file.write_all(line.as_bytes()).map_err(Error::io("write", &self.options.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, run, state};
    use crate::{Partial, TrainState};

    fn step(epoch: u64, steps_done: u64) -> StepInfo {
        StepInfo { lr: 0.5 / epoch as f64, ..testing::step(epoch, steps_done, 2) }
    }

    #[test]
    fn a_resumed_run_adds_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lr.csv");
        let begin = |state: &TrainState, every| {
            let mut observer = LearningRateLogger::new(LrLogOptions { path: path.clone(), every });
            observer.on_begin(&run(3, state)).unwrap();
            observer
        };
        let mut observer = begin(&state(vec![]), 1);
        for (epoch, done) in [(1, 1), (1, 2), (2, 1)] {
            observer.on_step(&step(epoch, done)).unwrap();
        }
        let text = || fs::read_to_string(&path).unwrap();
        assert_eq!(text(), "step,epoch,lr\n1,1,0.5\n2,1,0.5\n3,2,0.25\n");
        // The checkpoint is that of the first epoch: the third step comes again.
        let mut observer = begin(&TrainState { epochs_done: 1, step: 2, ..state(vec![]) }, 2);
        for (epoch, done) in [(2, 1), (2, 2)] {
            observer.on_step(&step(epoch, done)).unwrap();
        }
        assert_eq!(text(), "step,epoch,lr\n1,1,0.5\n2,1,0.5\n4,2,0.25\n");
    }

    /// The run was interrupted in the evaluation after an epoch: a resume has no step of that epoch.
    #[test]
    fn steps_are_counted_over_the_whole_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lr.csv");
        fs::write(&path, "step,epoch,lr\n1,1,0.5\n2,1,0.5\n3,2,0.").unwrap();
        let partial = Partial { steps: 2, ..Partial::default() };
        let mut observer = LearningRateLogger::new(LrLogOptions { path: path.clone(), every: 1 });
        observer.on_begin(&run(3, &TrainState { step: 2, partial, ..state(vec![]) })).unwrap();
        observer.on_step(&step(2, 1)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "step,epoch,lr\n1,1,0.5\n2,1,0.5\n3,2,0.25\n");
    }

    #[test]
    fn a_file_that_is_no_log_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lr.csv");
        for bytes in [&b"step,rate\n1,0.5\n"[..], b"\xff\xfe"] {
            fs::write(&path, bytes).unwrap();
            let mut observer = LearningRateLogger::new(LrLogOptions { path: path.clone(), every: 1 });
            assert!(observer.on_begin(&run(3, &TrainState { step: 2, ..state(vec![]) })).is_err());
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
}
