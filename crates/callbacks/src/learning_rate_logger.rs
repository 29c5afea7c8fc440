use crate::{Error, Observer, Result, RunInfo, StepInfo, TrainState};
use options::{Kind, Table, options};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

options! {
    /// A CSV file of the learning rate of every step, as Lightning's `LearningRateMonitor` logs it.
    /// [`LearningRateLogger`] writes it. By default the path is empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LrLogOptions {
        ["Callbacks"]
        /// Write the learning rate of every step to FILE as CSV, with the columns step (from 1), epoch (from 1) and lr
        path: PathBuf = PathBuf::new(), Kind::form(options::path, "a path in quotes"), "--lr-log FILE";
        /// With --lr-log, write every Nth step only
        every: u64 = 1, Kind::Whole(1), "--lr-log-every N";
    }
}

/// The options in a configuration.
pub(crate) const TABLE: Table =
    Table { key: "lr_log", options: LrLogOptions::OPTIONS, begins: Some(|| json!(LrLogOptions::default())) };

/// Writes the learning rate of steps to a CSV file with the columns `step`, `epoch` and `lr`. A resumed run
/// removes the rows of steps that it repeats, and appends.
///
/// ```
/// use callbacks::{LearningRateLogger, LrLogOptions};
///
/// let observer = LearningRateLogger::new(LrLogOptions { path: "lr.csv".into(), every: 10 });
/// ```
#[derive(Debug)]
pub struct LearningRateLogger {
    options: LrLogOptions,
    /// Steps of the epochs before this one.
    steps_before: u64,
    file: Option<File>,
}

const HEADER: &str = "step,epoch,lr\n";

impl LearningRateLogger {
    /// A logger with these options.
    pub fn new(options: LrLogOptions) -> Self {
        LearningRateLogger { options, steps_before: 0, file: None }
    }
}

/// The header and the rows up to a step.
fn up_to(text: &str, step: u64) -> String {
    let of = |line: &str| line.split(',').next().and_then(|number| number.parse::<u64>().ok());
    let lines = text.lines().filter(|line| of(line).is_some_and(|number| number <= step));
    lines.fold(HEADER.to_owned(), |all, line| all + line + "\n")
}

impl Observer for LearningRateLogger {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let path = &self.options.path;
        let TrainState { step, partial, .. } = run.state;
        let text = if *step == 0 { String::new() } else { fs::read_to_string(path).unwrap_or_default() };
        let mut file = File::create(path).map_err(Error::io("write", path))?;
        file.write_all(up_to(&text, *step).as_bytes()).map_err(Error::io("write", path))?;
        (self.file, self.steps_before) = (Some(file), step - partial.steps);
        Ok(())
    }

    fn on_step(&mut self, step: &StepInfo) -> Result<()> {
        let number = self.steps_before + step.steps_done;
        if step.steps_done == step.steps_per_epoch {
            self.steps_before = number;
        }
        let is_due = number.is_multiple_of(self.options.every);
        let Some(file) = self.file.as_mut().filter(|_| is_due) else { return Ok(()) };
        let line = format!("{number},{},{:?}\n", step.epoch + 1, step.lr);
        file.write_all(line.as_bytes()).map_err(Error::io("write", &self.options.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, run, state};

    fn step(epoch: u64, steps_done: u64) -> StepInfo {
        StepInfo { lr: 0.5 / (epoch + 1) as f64, ..testing::step(epoch, steps_done, 2) }
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
        for (epoch, done) in [(0, 1), (0, 2), (1, 1)] {
            observer.on_step(&step(epoch, done)).unwrap();
        }
        let text = || fs::read_to_string(&path).unwrap();
        assert_eq!(text(), "step,epoch,lr\n1,1,0.5\n2,1,0.5\n3,2,0.25\n");
        // The checkpoint is that of the first epoch: the third step comes again.
        let mut observer = begin(&TrainState { epoch: 1, step: 2, ..state(vec![]) }, 2);
        for (epoch, done) in [(1, 1), (1, 2)] {
            observer.on_step(&step(epoch, done)).unwrap();
        }
        assert_eq!(text(), "step,epoch,lr\n1,1,0.5\n2,1,0.5\n4,2,0.25\n");
    }
}
