use crate::{Error, Observer, Result, RunInfo, StepRecord};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes the figures within the epochs to `history-steps.jsonl` in the run directory: a [`StepRecord`] per
/// line, after every [`log_every`](crate::Outputs::log_every) steps.
///
/// A line has the means over the steps since the line before, so no line repeats another's steps. Values that
/// are not finite are `null`. A resumed run removes the lines of the steps that it repeats, and appends.
///
/// ```
/// use towers_callbacks::{Observer, StepHistory};
///
/// let observer: Box<dyn Observer> = Box::new(StepHistory::new("runs/a"));
/// ```
#[derive(Debug)]
pub struct StepHistory {
    path: PathBuf,
    file: Option<File>,
}

impl StepHistory {
    /// The file in a run directory.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        StepHistory { path: run_dir.as_ref().join("history-steps.jsonl"), file: None }
    }
}

/// The whole lines of the steps up to `step`.
fn up_to(text: &str, step: u64) -> String {
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
    text.split_inclusive('\n').filter(|line| of(line).is_some_and(|number| number <= step)).collect()
}

impl Observer for StepHistory {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let text = match towers_files::read_text(&self.path) {
            _ if run.state.step == 0 => String::new(),
            Err(error) if error.source.kind() == ErrorKind::NotFound => String::new(),
            // A file that can't be read is not replaced.
            text => up_to(&text?, run.state.step),
        };
        towers_files::write(&self.path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = Some(file.map_err(Error::io("write", &self.path))?);
        Ok(())
    }

    fn on_record(&mut self, record: &StepRecord) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(record);
        // One write, so that a concurrent reader sees whole lines.
        let written =
            line.map_err(std::io::Error::from).and_then(|line| file.write_all((line + "\n").as_bytes()));
        written.map_err(Error::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, state, step_record};
    use crate::{Partial, TrainState};

    #[test]
    fn a_record_has_the_steps_since_the_one_before() {
        let mut partial =
            Partial { samples: 10, loss_sum: 20.0, correct: 4.0, seconds: 2.0, ..Partial::default() };
        let record = |step, [loss, acc, images_per_second]: [f64; 3]| StepRecord {
            lr: 0.0,
            images_per_second,
            ..step_record(step, loss, acc)
        };
        let first = record(5, [2.0, 0.4, 5.0]);
        assert_eq!(partial.record(1, 5), Some(first));
        assert_eq!(partial.record(1, 5), None, "there are no steps since");
        (partial.samples, partial.loss_sum, partial.correct, partial.seconds) = (14, 22.0, 7.0, 4.0);
        let second = record(7, [0.5, 0.75, 2.0]);
        assert_eq!(partial.record(1, 7), Some(second));
    }

    #[test]
    fn a_resume_removes_the_lines_that_it_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history-steps.jsonl");
        let record = |step, loss| StepRecord { epoch: 1, ..step_record(step, loss, 0.5) };
        let go = |done: u64, steps: &[u64]| {
            let mut observer = StepHistory::new(folder.path());
            observer.on_begin(&run(3, &TrainState { step: done, ..state(vec![]) })).unwrap();
            steps.iter().for_each(|&step| observer.on_record(&record(step, step as f64)).unwrap());
            std::fs::read_to_string(&path).unwrap()
        };
        let line = |step: &u64| {
            format!(
                "{{\"step\":{step},\"epoch\":1,\"loss\":{step}.0,\"acc\":0.5,\"lr\":0.1,\"images_per_second\":8.0}}\n"
            )
        };
        let lines = |steps: &[u64]| steps.iter().map(line).collect::<String>();
        assert_eq!(go(0, &[4, 8, 12]), lines(&[4, 8, 12]));
        // The process died while it wrote the last line.
        std::fs::write(&path, lines(&[4, 8, 12]) + &line(&16)[..20]).unwrap();
        assert_eq!(go(9, &[12, 16]), lines(&[4, 8, 12, 16]));
        std::fs::write(&path, b"\xff").unwrap();
        let resumed = TrainState { step: 9, ..state(vec![]) };
        assert!(StepHistory::new(folder.path()).on_begin(&run(3, &resumed)).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"\xff", "a file that can't be read stays");
        assert_eq!(go(0, &[4]), lines(&[4]), "a new run");
        StepHistory::new(folder.path()).on_record(&record(1, 1.0)).unwrap();
        assert!(serde_json::to_string(&record(1, f64::NAN)).unwrap().contains("\"loss\":null"));
    }
}
