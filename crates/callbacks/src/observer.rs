use crate::Result;
use crate::state::{EpochRecord, StepRecord, TrainState, metric_names};
use serde_json::Value;
use towers_checkpoint::Tensors;
use towers_metrics::Values;

/// The information for an observer at the start of a run.
#[non_exhaustive]
pub struct RunInfo<'a> {
    /// The recipe.
    pub recipe: &'a str,
    /// The network.
    pub model: &'a str,
    /// Epochs that the run is to have.
    pub epochs: u64,
    /// The state of the run: the epochs of before a resume, or none.
    pub state: &'a TrainState,
    /// Training samples.
    pub train_samples: usize,
    /// Validation samples.
    pub val_samples: usize,
    /// They are measured after every so many epochs, and after the last.
    pub validate_every: u64,
    /// Steps per epoch.
    pub steps_per_epoch: u64,
    /// The names of the metrics of every epoch, as in [`EpochRecord::metrics`].
    pub metrics: Vec<String>,
    /// The number of replicas.
    pub replicas: usize,
    /// The device's name and the number of replicas, e.g. `the CPU (2 threads)`.
    pub devices: String,
    /// The CPU's instruction set for numbers, such as `avx2`.
    pub simd: &'a str,
    /// The CPU's instruction set for bf16, if it has one.
    pub bf16: Option<&'a str>,
    /// The number of the network's parameters and running averages.
    pub parameters: u64,
    /// The floating-point operations of convolutions and dense layers in a forward pass of one image, a
    /// multiply-add as two.
    pub flops: u64,
    /// The hyperparameters: the options that decide the numbers of the run, by key, with numbers, texts or
    /// truth values.
    pub options: Vec<(String, Value)>,
    /// Sentences about the run for people, such as how the learning rate is scaled.
    pub notes: Vec<String>,
}

impl<'a> RunInfo<'a> {
    /// A run with this state that validates after every epoch. It has the metrics that every run measures, and those of the epochs
    /// before. All else is empty or 0: set the fields that are known.
    ///
    /// ```
    /// use towers_callbacks::{RunInfo, TrainState};
    ///
    /// let state = TrainState::default();
    /// let mut run = RunInfo::new(&state);
    /// (run.recipe, run.epochs) = ("quick", 4);
    /// ```
    pub fn new(state: &'a TrainState) -> Self {
        RunInfo {
            recipe: "",
            model: "",
            epochs: 0,
            state,
            train_samples: 0,
            val_samples: 0,
            validate_every: 1,
            steps_per_epoch: 0,
            metrics: metric_names(&state.history).into_iter().map(str::to_owned).collect(),
            replicas: 0,
            devices: String::new(),
            simd: "",
            bf16: None,
            parameters: 0,
            flops: 0,
            options: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A picture as a PNG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its width in pixels.
    pub width: u32,
    /// Its height in pixels.
    pub height: u32,
    /// The file.
    pub png: Vec<u8>,
}

/// The information for an observer after a step. Losses and accuracies are means over the epoch so far; on a GPU,
/// up to the last reading, which is at most a tenth of a second old.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepInfo {
    /// The epoch, from 1.
    pub epoch: u64,
    /// All epochs of the run.
    pub epochs: u64,
    /// Steps done in this epoch.
    pub steps_done: u64,
    /// Steps per epoch.
    pub steps_per_epoch: u64,
    /// Samples seen in this epoch.
    pub samples: u64,
    /// The mean `loss` and `acc`.
    pub metrics: Values,
    /// The learning rate of the step.
    pub lr: f64,
    /// Seconds since this epoch began, or was resumed.
    pub seconds: f64,
}

/// A copy of the network and the optimizer, made on request.
pub trait Snapshot {
    /// Parameters, running averages, and the optimizer's state, by name: the tensors of a checkpoint.
    ///
    /// # Errors
    /// Those of the device.
    fn all_tensors(&self) -> Result<Tensors>;

    /// The part of [`all_tensors`](Snapshot::all_tensors) that only training needs: the optimizer's state.
    ///
    /// # Errors
    /// Those of the device.
    fn optimizer_tensors(&self) -> Result<Tensors>;

    /// Parameters and running averages, and all other content of `model.safetensors`.
    ///
    /// # Errors
    /// Those of the device.
    fn model_tensors(&self) -> Result<Tensors>;

    /// The configuration and the state of the run, as JSON: the part of a checkpoint without the tensors.
    ///
    /// # Errors
    /// If they can't be written as JSON.
    fn saved(&self) -> Result<Value>;

    /// The first `count` augmented images of the first batch of the finished epoch, if there are any.
    ///
    /// # Errors
    /// If they can't be made or drawn.
    fn batch_picture(&self, _count: usize) -> Result<Option<Picture>> {
        Ok(None)
    }
}

/// The network of a loop of your own: its tensors, without an optimizer's state and a configuration.
impl Snapshot for Tensors {
    fn all_tensors(&self) -> Result<Tensors> {
        Ok(self.clone())
    }

    fn optimizer_tensors(&self) -> Result<Tensors> {
        Ok(Tensors::new())
    }

    fn model_tensors(&self) -> Result<Tensors> {
        Ok(self.clone())
    }

    fn saved(&self) -> Result<Value> {
        Ok(Value::Null)
    }
}

/// Whether a run continues after an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next epoch.
    Continue,
    /// The run is done, for this reason.
    Stop(String),
}

/// Watches a run on its first replica: progress, history, plots, checkpoints, early stopping.
///
/// After a failure all other observers are still called. The run then stops after the next step, is saved as after
/// Ctrl-C, and ends with the first error; an error of `on_begin` or `on_resume` ends it at once.
///
/// An observer sees numbers and, on request, copies of tensors, never a device. After a resume `on_begin` has the
/// finished epochs, so that an observer can restore its state.
///
/// ```
/// use towers_callbacks::{EpochRecord, Flow, Observer, Result, Snapshot, TrainState};
///
/// /// Stops when the training accuracy has reached a goal.
/// struct Goal(f64);
///
/// impl Observer for Goal {
///     fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
///         Ok(if record.get("acc") >= Some(self.0) { Flow::Stop("the goal is reached".into()) } else { Flow::Continue })
///     }
/// }
/// ```
pub trait Observer: Send {
    /// Whether the run goes on without this observer after a failure. The error is then a warning, and the observer is
    /// not called again.
    fn is_optional(&self) -> bool {
        false
    }

    /// Before `on_begin`, while the images of a data set in files are read: images done, and all images of the split. A
    /// pass begins with none done, and ends with all.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_read(&mut self, _done: usize, _all: usize) -> Result<()> {
        Ok(())
    }

    /// Before the first step.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_begin(&mut self, _run: &RunInfo<'_>) -> Result<()> {
        Ok(())
    }

    /// Before the first step of a run that resumes at the end of an epoch, if neither the epochs nor early
    /// stopping were changed. Returns `Stop` if the run had ended there. Not called if there is no epoch
    /// left.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_resume(&mut self, _state: &TrainState) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// At the beginning of an epoch (counted from 1), and at a resume in the middle of one.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_epoch_begin(&mut self, _epoch: u64) -> Result<()> {
        Ok(())
    }

    /// After every step.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_step(&mut self, _step: &StepInfo) -> Result<()> {
        Ok(())
    }

    /// After every [`log_every`](crate::Outputs::log_every) steps of an epoch, after `on_step`: the figures of the
    /// steps since the call before. The last call of an epoch is after its last step; the one before is left out
    /// if less than half as many steps follow.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_record(&mut self, _record: &StepRecord) -> Result<()> {
        Ok(())
    }

    /// After some steps of an epoch and after its last step, if several replicas train: the images per second
    /// of each one while it computes, by rank. Waiting for other replicas and the sum over the replicas are
    /// not counted. So the rates add up to more than the throughput of the run, and the slowest replica is
    /// the one that the others wait for.
    ///
    /// Not called for GPUs, which compute asynchronously.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_replica_rates(&mut self, _images_per_second: &[f64]) -> Result<()> {
        Ok(())
    }

    /// The number of steps, counted over the whole run, between two calls of
    /// [`on_snapshot`](Observer::on_snapshot); `None` for never. Called before the run.
    fn snapshot_every(&self) -> Option<u64> {
        None
    }

    /// In the middle of an epoch, after the steps of [`snapshot_every`](Observer::snapshot_every) and after
    /// `on_step`.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_snapshot(&mut self, _step: &StepInfo, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }

    /// When the run is asked to save in the middle of an epoch and to continue (SIGUSR1), after the current
    /// step.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_save(&mut self, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }

    /// While the validation data are evaluated: samples done, and all samples.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_evaluate(&mut self, _done: usize, _all: usize) -> Result<()> {
        Ok(())
    }

    /// A warning for the user that does not end the run; once each.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_warning(&mut self, _warning: &str) -> Result<()> {
        Ok(())
    }

    /// After every epoch and its evaluation. `state` includes the epoch.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_epoch_end(&mut self, _record: &EpochRecord, _state: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// Asked before every step: whether the run ends after it, within the epoch, and why. Replicas on GPUs hear of it some steps later.
    fn is_over(&mut self) -> Option<String> {
        None
    }

    /// When the run ends within an epoch: an observer [is over](Self::is_over), or the steps of `max_steps` are done.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_end_within_epoch(&mut self, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.on_interrupt(state, snapshot)
    }

    /// When the run is asked to stop in the middle of an epoch (Ctrl-C), after the current step or evaluation
    /// batch.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_interrupt(&mut self, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }

    /// After the last epoch. The network is the run's last one; after an early stop, the average of the
    /// weights if there is one. If `terminate_on_nan` ended the run, `state` has an unfinished epoch, and the
    /// network may have values that are not finite and must not be saved.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_end(&mut self, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, state};
    use crate::{CheckpointOptions, Checkpoints, Error, History, ModelCheckpoint, ModelCheckpointOptions};
    use std::path::Path;

    /// Not after an epoch that would be lost.
    #[test]
    fn a_folder_is_made_or_refused_when_the_run_begins() {
        type New<'a> = &'a dyn Fn(&Path) -> Result<Box<dyn Observer>>;
        let place = tempfile::tempdir().unwrap();
        let files = ModelCheckpointOptions { path: "w.safetensors".into(), ..Default::default() };
        let new: [New<'_>; 3] = [
            &|folder| Ok(Box::new(History::new(folder))),
            &|folder| Ok(Box::new(Checkpoints::new(folder, &CheckpointOptions::default())?)),
            &|folder| Ok(Box::new(ModelCheckpoint::new(folder, files.clone())?)),
        ];
        for (k, new) in new.iter().enumerate() {
            let folder = place.path().join(format!("runs/{k}"));
            let mut observer = new(&folder).unwrap();
            observer.on_begin(&run(9, &state(vec![]))).unwrap();
            assert!(folder.is_dir());
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::write(&folder, "in the way").unwrap();
            let error = observer.on_begin(&run(9, &state(vec![]))).unwrap_err();
            assert!(matches!(error, Error::File(_)) && error.to_string().contains("runs"), "{k}: {error}");
        }
    }
}
