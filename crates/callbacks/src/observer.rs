use crate::Result;
use crate::state::{EpochRecord, TrainState};
use checkpoint::Tensors;
use serde_json::Value;

/// What an observer learns at the start of a run.
pub struct RunInfo<'a> {
    /// The recipe.
    pub recipe: &'a str,
    /// The network.
    pub model: &'a str,
    /// Epochs that the run is to have.
    pub epochs: u64,
    /// Where the run stands: epochs done before (after a resume), or none.
    pub state: &'a TrainState,
    /// Training samples.
    pub train_samples: usize,
    /// Validation samples.
    pub val_samples: usize,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// How many replicas share the work.
    pub replicas: usize,
    /// The device's name and the number of replicas, e.g. `the CPU (2 threads)`.
    pub devices: String,
    /// The CPU's instruction set for numbers, such as `avx2`.
    pub simd: &'a str,
    /// The CPU's instruction set for bf16, if it has one.
    pub bf16: Option<&'a str>,
    /// Sentences about the run for people, such as how the learning rate is scaled.
    pub notes: Vec<String>,
}

/// A picture, as its PNG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The file.
    pub png: Vec<u8>,
}

/// What an observer learns after a step. Losses and accuracies are means over the epoch so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepInfo {
    /// The epoch, from 0.
    pub epoch: u64,
    /// All epochs of the run.
    pub epochs: u64,
    /// Steps done in this epoch.
    pub steps_done: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Samples seen in this epoch.
    pub samples: u64,
    /// The mean loss.
    pub loss: f64,
    /// The mean accuracy.
    pub acc: f64,
    /// The learning rate of the step.
    pub lr: f64,
    /// Seconds since this epoch began, or was resumed.
    pub seconds: f64,
}

/// A copy of the network and the optimizer, made when it is asked for.
pub trait Snapshot {
    /// Parameters, running averages, and the optimizer's state, by name: what a resume needs.
    ///
    /// # Errors
    /// What the device says.
    fn all_tensors(&self) -> Result<Tensors>;

    /// What of [`all_tensors`](Snapshot::all_tensors) training alone needs: the optimizer's state.
    ///
    /// # Errors
    /// What the device says.
    fn optimizer_tensors(&self) -> Result<Tensors>;

    /// Parameters and running averages with what inference needs besides: the content of `model.safetensors`.
    ///
    /// # Errors
    /// What the device says.
    fn model_tensors(&self) -> Result<Tensors>;

    /// The configuration and the state of the run, as JSON: what a resume needs beside the tensors.
    ///
    /// # Errors
    /// If they can't be written as JSON.
    fn saved(&self) -> Result<Value>;

    /// The first `count` images of the first batch of the epoch that has just ended, as the augmentation made them, where there are any.
    ///
    /// # Errors
    /// If they can't be made or drawn.
    fn batch_picture(&self, _count: usize) -> Result<Option<Picture>> {
        Ok(None)
    }
}

/// Whether a run goes on after an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// On with the next epoch.
    Continue,
    /// The run is done, for this reason.
    Stop(String),
}

/// Watches a run on its first replica: progress, history, plots, checkpoints, early stopping.
///
/// An observer sees numbers and, on request, copies of tensors, never a device. After a resume `on_begin` brings the
/// epochs that were done before, so that observers which remember something can catch up.
///
/// ```
/// use callbacks::{EpochRecord, Flow, Observer, Result, Snapshot, TrainState};
///
/// /// Stops when the training accuracy has reached a goal.
/// struct Goal(f64);
///
/// impl Observer for Goal {
///     fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
///         Ok(if record.acc >= self.0 { Flow::Stop("the goal is reached".into()) } else { Flow::Continue })
///     }
/// }
/// ```
pub trait Observer: Send {
    /// Before the first step.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_begin(&mut self, _run: &RunInfo<'_>) -> Result<()> {
        Ok(())
    }

    /// Before the first step of a run that goes on at the end of an epoch, with no more epochs than it was to have and the same early
    /// stopping: whether it was done there. Not asked if there is no epoch left.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_resume(&mut self, _state: &TrainState) -> Result<Flow> {
        Ok(Flow::Continue)
    }

    /// When an epoch begins (counted from 0), also one that is resumed half-way.
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

    /// After some steps of an epoch, and its last, where several replicas train: the images a second of each one while it computes, by
    /// rank. What it waits for the others, and the sum over all replicas, are not counted, so together they say more than a run
    /// reaches, and the slowest says what the others wait for.
    ///
    /// GPUs compute behind the host's back, so of them nobody hears.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_replica_rates(&mut self, _images_per_second: &[f64]) -> Result<()> {
        Ok(())
    }

    /// After how many steps, counted over the whole run, this observer is to see the network each time: see
    /// [`on_snapshot`](Observer::on_snapshot). `None` for never. Asked before the run.
    fn snapshot_every(&self) -> Option<u64> {
        None
    }

    /// In the middle of an epoch, after the steps that [`snapshot_every`](Observer::snapshot_every) names; behind `on_step`.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_snapshot(&mut self, _step: &StepInfo, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }

    /// While the validation data are evaluated: samples done of all.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_evaluate(&mut self, _done: usize, _all: usize) -> Result<()> {
        Ok(())
    }

    /// When something is worth telling people that does not keep the run from going on: once each.
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

    /// When the run is asked to stop in the middle of an epoch (Ctrl-C), after the current step or batch of the evaluation.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_interrupt(&mut self, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }

    /// After the last epoch. The network is the run's last one: after an early stop, the average of the weights where there is one.
    /// Where `terminate_on_nan` ended the run, `state` has steps of an epoch that is not over, and the network
    /// may hold numbers that are not finite: nothing to be saved.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_end(&mut self, _state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        Ok(())
    }
}
