use crate::callback::Callback;
use crate::monitor::{METRIC, MODE};
use crate::pattern::{Figures, Pattern};
use crate::{
    EpochRecord, Error, Flow, Monitor, Observer, Result, Run, RunInfo, SAVED, Snapshot, StepInfo, TrainState,
};
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};
use towers_checkpoint::{Mode, save_tensors};
use towers_options::{Kind, Refused, Table, hint, message, options};

options! {
    /// The files of the network that a run writes besides its own, as by Keras' `ModelCheckpoint`, with its
    /// names and defaults. [`ModelCheckpoint`] writes them. By default the path is empty, which a run
    /// refuses.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ModelCheckpointOptions {
        ["Callbacks"]
        /// Also write the network into files inside the run's folder: 'w-{epoch:02d}-{val_acc:.2f}.safetensors'
        path: String = String::new(), Kind::Text, "--checkpoint-path PATTERN";
        /// The metric that decides which file of --checkpoint-path is the best: val_loss (default), loss, acc, val_acc, or val_ and a name of --metrics
        monitor: String = "val_loss".to_owned(), METRIC, "--monitor METRIC";
        /// Whether a lower or a higher --monitor is better: min, max, or auto by the metric's name
        mode: Mode = Mode::Auto, MODE, "--mode MODE";
        /// Write a file of --checkpoint-path only when --monitor is better than ever
        save_best_only: bool = false, Kind::Switch, "--save-best-only";
        /// Write only the weights into the files of --checkpoint-path; --resume-from needs the optimizer's state as well
        save_weights_only: bool = false, Kind::Switch, "--save-weights-only";
        /// Write a file of --checkpoint-path after every epoch, or after every N batches
        save_freq: SaveFreq = SaveFreq::Epoch, SAVE_FREQ, "--save-freq epoch|N";
        /// With --save-best-only, the value that --monitor must beat for the first file
        initial_value_threshold: Option<f64> = None, Kind::Number, "--initial-value-threshold X";
    }
}

impl Callback for ModelCheckpointOptions {
    const TABLE: Table = Table {
        key: "model_checkpoint",
        options: ModelCheckpointOptions::OPTIONS,
        begins: Some(|| json!(ModelCheckpointOptions::default())),
    };

    const BEFORE_CHECKPOINTS: bool = true;

    fn check(&self) -> Result<()> {
        ModelCheckpointOptions::check(self)
    }

    fn metrics(&self) -> Vec<(&'static str, String)> {
        let pattern = self.pattern().ok();
        let figures = pattern.iter().flat_map(Pattern::figures).filter(|figure| figure.starts_with("val_"));
        let in_path = figures.map(|figure| ("model_checkpoint.path", figure.to_owned()));
        in_path.chain([("model_checkpoint.monitor", self.monitor.clone())]).collect()
    }

    fn build(&self, run: &Run<'_>) -> Result<Box<dyn Observer>> {
        Ok(Box::new(ModelCheckpoint::new(run.folder, self.clone())?))
    }
}

const SAVE_FREQ: Kind = Kind::form(read_save_freq, "epoch or a number of batches, at least 1");

fn read_save_freq(text: &str) -> Result<serde_json::Value, Refused> {
    text.parse::<SaveFreq>().map(|freq| json!(freq))
}

/// The frequency of [`ModelCheckpointOptions`]: `"epoch"` or a number of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum SaveFreq {
    /// After every epoch.
    #[default]
    Epoch,
    /// After every so many batches, counted over the whole run.
    Batches(u64),
}

/// The form in JSON and TOML.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Batches(u64),
    Name(String),
}

impl From<SaveFreq> for Written {
    fn from(freq: SaveFreq) -> Self {
        match freq {
            SaveFreq::Epoch => Written::Name("epoch".to_owned()),
            SaveFreq::Batches(batches) => Written::Batches(batches),
        }
    }
}

impl TryFrom<Written> for SaveFreq {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let text = match written {
            Written::Batches(batches) => batches.to_string(),
            Written::Name(name) => name,
        };
        text.parse().map_err(|_| "it is neither `epoch` nor a number of batches")
    }
}

impl FromStr for SaveFreq {
    type Err = Refused;

    /// Reads `epoch` or a number of batches.
    fn from_str(text: &str) -> Result<Self, Refused> {
        match text.parse().ok().filter(|batches| *batches > 0) {
            Some(batches) => Ok(SaveFreq::Batches(batches)),
            None if text == "epoch" => Ok(SaveFreq::Epoch),
            None => Err(Refused::MustBe(format!("{}{}", SAVE_FREQ.accepted(), hint(text, ["epoch"])).into())),
        }
    }
}

impl ModelCheckpointOptions {
    fn pattern(&self) -> Result<Pattern> {
        Pattern::parse(&self.path, self.save_freq != SaveFreq::Epoch)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and the accepted values.
    pub fn check(&self) -> Result<()> {
        towers_options::check(self, &Self::TABLE)?;
        if let (SaveFreq::Batches(batches), true) = (self.save_freq, self.save_best_only) {
            let accepted = message!(
                "epoch with ",
                ["model_checkpoint.save_best_only"],
                ": only whole epochs are evaluated"
            );
            return Err(Error::option("model_checkpoint.save_freq", batches, accepted));
        }
        self.pattern().map(|_| ())
    }
}

/// Writes the network into files with names made from the epoch's figures, as Keras' `ModelCheckpoint` does.
///
/// The files are safetensors that `towers evaluate` and `towers predict` read. Unless only the weights are
/// saved, they also hold the optimizer's state and the state of the run: `towers_train::Resume::read` resumes from
/// them. To resume a run in its folder they are not needed: [`Checkpoints`](crate::Checkpoints) saves other
/// files for that.
///
/// After an epoch without validation no file is written that is named after its metrics, or that must be the best. After a resume the best value so far is that of the previous epochs. A value that is not finite is never
/// the best.
///
/// ```
/// use towers_callbacks::{ModelCheckpoint, ModelCheckpointOptions};
///
/// let path = "w-{epoch:02d}-{val_acc:.2f}.safetensors".to_owned();
/// let observer = ModelCheckpoint::new("runs/a", ModelCheckpointOptions { path, ..Default::default() })?;
/// # Ok::<(), towers_callbacks::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelCheckpoint {
    run_dir: PathBuf,
    options: ModelCheckpointOptions,
    pattern: Pattern,
    monitor: Monitor,
    best: Option<f64>,
}

impl ModelCheckpoint {
    /// Files in a run directory.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for invalid options, such as a path outside of the directory.
    pub fn new(run_dir: impl AsRef<Path>, options: ModelCheckpointOptions) -> Result<Self> {
        options.check()?;
        let pattern = options.pattern()?;
        let monitor = Monitor::new(&options.monitor, options.mode, 0.0);
        let best = options.initial_value_threshold;
        Ok(ModelCheckpoint { run_dir: run_dir.as_ref().to_owned(), options, pattern, monitor, best })
    }

    /// Whether to write a file after an epoch; remembers the best one. Not with figures in its name that the epoch lacks.
    fn decide(&mut self, record: &EpochRecord) -> bool {
        let is_there = |figure| figure == "epoch" || record.get(figure).is_some();
        if !self.pattern.figures().all(is_there) {
            return false;
        }
        let value = self.monitor.value(record);
        let best = value.filter(|value| self.monitor.improves(*value, self.best));
        self.best = best.or(self.best);
        best.is_some() || !self.options.save_best_only
    }

    fn write(&self, figures: &Figures, snapshot: &dyn Snapshot) -> Result<()> {
        let mut tensors = snapshot.model_tensors()?;
        if !self.options.save_weights_only {
            tensors.append(snapshot.optimizer_tensors()?)?;
            tensors.metadata_mut().insert(SAVED.to_owned(), snapshot.saved()?.to_string());
        }
        let path = self.run_dir.join(self.pattern.path(figures));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        Ok(save_tensors(&path, &tensors, tensors.metadata())?)
    }
}

impl Observer for ModelCheckpoint {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        // A folder that can't be written is reported now, not after the first epoch.
        std::fs::create_dir_all(&self.run_dir).map_err(Error::io("create", &self.run_dir))?;
        self.best = self.options.initial_value_threshold;
        for record in &run.state.history {
            self.decide(record);
        }
        Ok(())
    }

    fn snapshot_every(&self) -> Option<u64> {
        match self.options.save_freq {
            SaveFreq::Epoch => None,
            SaveFreq::Batches(batches) => Some(batches),
        }
    }

    fn on_snapshot(&mut self, step: &StepInfo, _: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        let StepInfo { epoch, steps_done, metrics, lr, .. } = step;
        self.write(&Figures { epoch: *epoch, batch: *steps_done, metrics, lr: *lr }, snapshot)
    }

    fn on_epoch_end(
        &mut self,
        record: &EpochRecord,
        _: &TrainState,
        snapshot: &dyn Snapshot,
    ) -> Result<Flow> {
        if self.options.save_freq == SaveFreq::Epoch && self.decide(record) {
            self.write(&record.into(), snapshot)?;
        }
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Fake, record, run, state, unvalidated};
    use towers_checkpoint::load_tensors;

    fn options(path: &str) -> ModelCheckpointOptions {
        ModelCheckpointOptions { path: path.to_owned(), ..ModelCheckpointOptions::default() }
    }

    /// Runs epochs with these validation accuracies after those of `before`, and returns the names of the
    /// files.
    fn names(options: ModelCheckpointOptions, before: &[f64], accuracies: &[f64]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut observer = ModelCheckpoint::new(folder.path(), options).unwrap();
        let epochs = |values: &[f64], from: u64| -> Vec<EpochRecord> {
            values
                .iter()
                .zip(from..)
                .map(|(&value, epoch)| record(epoch, [1.0, 0.5, 2.0 - value, value]))
                .collect()
        };
        let start = state(epochs(before, 1));
        observer.on_begin(&run(9, &start)).unwrap();
        for record in epochs(accuracies, 1 + before.len() as u64) {
            observer.on_epoch_end(&record, &start, &Fake(record.epoch as f32)).unwrap();
        }
        let mut names: Vec<String> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn every_epoch_or_the_best_are_written() {
        let every = options("w-{epoch:02d}-{val_acc:.2f}.safetensors");
        let accuracies = [0.25, 0.5, 0.5, 0.375, f64::INFINITY, 0.625];
        let named = |epochs: &[usize]| -> Vec<String> {
            let name = |&epoch: &usize| format!("w-{epoch:02}-{:.2}.safetensors", accuracies[epoch - 1]);
            epochs.iter().map(name).collect()
        };
        assert_eq!(names(every.clone(), &[], &accuracies), named(&[1, 2, 3, 4, 5, 6]));
        // By the validation loss, which is 2 - val_acc here.
        let best = ModelCheckpointOptions { save_best_only: true, ..every };
        assert_eq!(names(best.clone(), &[], &accuracies), named(&[1, 2, 6]));
        assert_eq!(names(best.clone(), &accuracies[..3], &accuracies[3..]).len(), 1, "a resume remembers");
        let by_accuracy = ModelCheckpointOptions { monitor: "val_accuracy".into(), ..best.clone() };
        assert_eq!(names(by_accuracy.clone(), &[], &accuracies), named(&[1, 2, 6]));
        let threshold = ModelCheckpointOptions { initial_value_threshold: Some(0.5), ..by_accuracy };
        assert_eq!(names(threshold, &[], &accuracies), named(&[6]));
        let worst = ModelCheckpointOptions { mode: Mode::Max, ..best };
        assert_eq!(names(worst, &[], &accuracies), named(&[1]));
    }

    #[test]
    fn an_epoch_without_validation_has_no_file_named_after_it() {
        let written = |options: ModelCheckpointOptions| {
            let folder = tempfile::tempdir().unwrap();
            let mut observer = ModelCheckpoint::new(folder.path(), options).unwrap();
            let start = state(vec![]);
            observer.on_begin(&run(9, &start)).unwrap();
            for record in
                [unvalidated(1, 1.0, 0.5), record(2, [1.0, 0.5, 1.5, 0.5]), unvalidated(3, 0.5, 0.5)]
            {
                observer.on_epoch_end(&record, &start, &Fake(0.0)).unwrap();
            }
            folder.path().read_dir().unwrap().count()
        };
        assert_eq!(written(options("{epoch}-{val_loss:.2f}.safetensors")), 1);
        assert_eq!(written(options("{epoch}-{loss:.2f}.safetensors")), 3);
        let best = ModelCheckpointOptions { save_best_only: true, ..options("{epoch}.safetensors") };
        assert_eq!(written(best), 1);
    }

    #[test]
    fn batches_are_counted_over_the_whole_run() {
        let folder = tempfile::tempdir().unwrap();
        let options = ModelCheckpointOptions {
            save_freq: SaveFreq::Batches(4),
            save_weights_only: true,
            ..options("{epoch}/{batch:03d}-{loss:.1f}.safetensors")
        };
        let mut observer = ModelCheckpoint::new(folder.path(), options).unwrap();
        assert_eq!(observer.snapshot_every(), Some(4));
        for step in [4, 8, 12] {
            let epochs_done = (step - 1) / 10;
            let info = testing::step(epochs_done + 1, (step - 1) % 10 + 1, 10);
            let state = TrainState { epochs_done, step, ..TrainState::default() };
            observer.on_snapshot(&info, &state, &Fake(step as f32)).unwrap();
        }
        for (file, value) in [("1/004-0.5", 4.0), ("1/008-0.5", 8.0), ("2/002-0.5", 12.0)] {
            let tensors = load_tensors(folder.path().join(format!("{file}.safetensors"))).unwrap();
            assert_eq!(tensors.get("kernel").unwrap().data(), [value]);
            assert!(tensors.get("velocity").is_none(), "the weights alone");
        }
        assert_eq!(folder.path().join("1").read_dir().unwrap().count(), 2);
        let whole = self::options("a.safetensors");
        let mut observer = ModelCheckpoint::new(folder.path(), whole).unwrap();
        observer.on_epoch_end(&record(1, [1.0; 4]), &state(vec![]), &Fake(3.0)).unwrap();
        let tensors = load_tensors(folder.path().join("a.safetensors")).unwrap();
        assert_eq!(tensors.get("velocity").unwrap().data(), [-3.0]);
    }
}
