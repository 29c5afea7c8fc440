use crate::monitor::{METRIC, direction};
use crate::{
    EarlyStop, EarlyStopping, EpochRecord, Error, Flow, Observer, Result, RunInfo, Snapshot, StepInfo,
    TrainState,
};
use serde::de::IgnoredAny;
use std::fs;
use std::path::{Path, PathBuf};
use towers_checkpoint::{
    Best, BestSoFar, Mode, Policy, Store, Tensor, Tensors, epoch_name, load_tensors, save_tensors, step_name,
};
use towers_options::{Kind, Table, options};

/// The folder of a run directory that holds its checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// The file of a run directory that holds its model, where `trained` looks for it.
pub(crate) const MODEL_FILE: &str = "model.safetensors";

options! {
    /// The checkpoints of a run to keep.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CheckpointOptions {
        ["Output"]
        /// Save a checkpoint every N epochs, by default 1; 0 for the best and the last only
        every_epochs: u64 = 1, Kind::Whole(0), "--save-every N";
        /// Also save a checkpoint every N steps, counted over the whole run; 0 for none
        every_steps: u64 = 0, Kind::Whole(0);
        /// Keep the last K checkpoints, by default 3; 0 for all
        keep_last: usize = 3, Kind::Whole(0), "--keep-last K";
        /// Keep the best checkpoint by METRIC: loss, acc, val_loss, val_acc, or val_ and a name of --metrics
        save_best: Option<String> = None, METRIC, "--save-best METRIC";
    }
}

/// The options in a configuration.
pub(crate) const TABLE: Table =
    Table { key: "checkpoints", options: CheckpointOptions::OPTIONS, begins: None };

/// Saves the state of the run in `checkpoints/`, and the trained network in `model.safetensors`.
///
/// A checkpoint is saved after every so many epochs, and after each epoch that is the best by the metric of
/// `--save-best`. Another one is saved when the run ends, when it is interrupted, and after the configured
/// number of steps; it is then named by its step. The last few checkpoints and the best one are kept.
///
/// With `--save-best`, `model.safetensors` is the best network; with `restore_best_weights` it is the best
/// one by [`EarlyStopping`]. Both are replaced at every improvement. Otherwise it is the newest network,
/// replaced with every checkpoint of a whole epoch. The model is written before the checkpoint. So a run that
/// is killed between the two repeats the epoch, and writes the model again.
///
/// After a resume the best value so far is that of the previous epochs, if its checkpoint is in this folder;
/// its network becomes the model again. A best epoch without a checkpoint is forgotten, as after a resume
/// into another folder: the best of the next epochs replaces it.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    store: Store,
    model: PathBuf,
    policy: Policy,
    every_steps: u64,
    best: Option<BestSoFar>,
    /// Finds the best epoch, if its weights are to be restored.
    stopping: Option<EarlyStopping>,
    /// The epochs and steps of the checkpoint saved last: the end of an epoch adds no step.
    saved: Option<(u64, u64)>,
    /// The best network so far, if the model's file has another one.
    restore: Option<Tensors>,
}

impl Checkpoints {
    /// Checkpoints in a run directory.
    ///
    /// # Errors
    /// [`Error::Option`] when there is no metric of that name, [`Error::File`] when the folder can't be used.
    pub fn new(run_dir: impl AsRef<Path>, options: &CheckpointOptions) -> Result<Self> {
        towers_options::check(options, &TABLE)?;
        let best =
            options.save_best.clone().map(|metric| Best { mode: direction(&metric, Mode::Auto), metric });
        let policy = Policy {
            every_epochs: options.every_epochs,
            keep_last: Some(options.keep_last).filter(|keep| *keep > 0),
            best,
        };
        let store = Store::open(run_dir.as_ref().join(CHECKPOINTS))?;
        let model = run_dir.as_ref().join(MODEL_FILE);
        Ok(Checkpoints {
            store,
            model,
            policy,
            every_steps: options.every_steps,
            best: None,
            stopping: None,
            saved: None,
            restore: None,
        })
    }

    /// Makes the network of the best epoch the model, by the rule of early stopping.
    ///
    /// # Errors
    /// [`Error::Option`] for options that make no sense.
    pub fn best_weights(self, stop: &EarlyStop) -> Result<Self> {
        Ok(Checkpoints { stopping: Some(EarlyStopping::new(stop.clone())?), ..self })
    }

    /// The best epoch so far, if a metric is watched: the name of its checkpoint and the metric's value.
    pub fn best(&self) -> Option<&BestSoFar> {
        self.best.as_ref()
    }

    /// Decides whether to save after an epoch, and remembers the best one.
    fn decide(&mut self, record: &EpochRecord) -> towers_checkpoint::Decision {
        let mut value = self.policy.best.as_ref().and_then(|best| record.get(&best.metric));
        let mut decision = self.policy.decide(record.epoch, value, self.best.as_ref());
        if let Some(stopping) = &mut self.stopping {
            decision.best = stopping.observe(record).best;
            value = stopping.best().map(|(value, _)| value);
        }
        if let (true, Some(value)) = (decision.best, value) {
            self.best = Some(BestSoFar { name: epoch_name(record.epoch), value });
        }
        decision
    }

    /// Finds the best of the previous epochs whose checkpoint is in this folder. Leaves out the first epochs
    /// until the best one has a checkpoint.
    fn catch_up(&mut self, history: &[EpochRecord]) -> Result<()> {
        let kept: Vec<String> = self.store.list()?.entries.into_iter().map(|entry| entry.name).collect();
        for from in 0..=history.len() {
            self.best = None;
            if let Some(stopping) = &mut self.stopping {
                stopping.reset();
            }
            for record in &history[from..] {
                self.decide(record);
            }
            let Some(best) = &self.best else { return Ok(()) };
            if !kept.contains(&best.name) {
                continue;
            }
            if let Ok(checkpoint) = self.store.load::<IgnoredAny>(&best.name) {
                self.restore = (!self.is_model(&checkpoint.tensors)).then_some(checkpoint.tensors);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the model's file holds these weights.
    fn is_model(&self, tensors: &Tensors) -> bool {
        let Ok(model) = load_tensors(&self.model) else { return false };
        let bits = |data: &[f32]| data.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let both = model.iter().filter_map(|tensor| Some((tensor.data, tensors.get(tensor.name)?.data())));
        let same: Vec<bool> = both.map(|(model, own)| bits(model) == bits(own)).collect();
        !same.is_empty() && same.into_iter().all(|same| same)
    }

    /// Whether the model is the best epoch's.
    fn watches(&self) -> bool {
        self.policy.best.is_some() || self.stopping.is_some()
    }

    fn save(&mut self, name: &str, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.store.save(name, &snapshot.all_tensors()?, &snapshot.saved()?)?;
        self.store.prune(&self.policy, self.best.as_ref().map(|best| best.name.as_str()))?;
        self.saved = Some((state.epochs_done, state.step));
        Ok(())
    }

    fn save_model(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        self.restore = None;
        let tensors = snapshot.model_tensors()?;
        Ok(save_tensors(&self.model, &tensors, tensors.metadata())?)
    }

    /// A run that ended leaves a model, even if the watched metric was never finite. After an early stop the network may differ from
    /// that of the last epoch.
    fn leave_model(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        if self.best.is_none() || !self.model.exists() { self.save_model(snapshot) } else { Ok(()) }
    }

    /// Writes the best epoch's network to the model again. The metadata are the same in all epochs.
    fn restore_model(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        let Some(best) = self.restore.take() else { return Ok(()) };
        let model = snapshot.model_tensors()?;
        let tensors = model.iter().map(|tensor| best.get(tensor.name).map_or(tensor, Tensor::as_ref));
        Ok(save_tensors(&self.model, tensors, model.metadata())?)
    }
}

impl Observer for Checkpoints {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        // A folder that can't be written is reported now, not after the first epoch.
        if let Some(folder) = self.model.parent() {
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        (self.best, self.saved, self.restore) = (None, None, None);
        if self.watches() { self.catch_up(&run.state.history) } else { Ok(()) }
    }

    fn on_epoch_end(
        &mut self,
        record: &EpochRecord,
        state: &TrainState,
        snapshot: &dyn Snapshot,
    ) -> Result<Flow> {
        let decision = self.decide(record);
        if decision.best || (decision.periodic && !self.watches()) {
            self.save_model(snapshot)?;
        }
        self.restore_model(snapshot)?;
        if decision.save() {
            self.save(&epoch_name(state.epochs_done), state, snapshot)?;
        }
        Ok(Flow::Continue)
    }

    fn snapshot_every(&self) -> Option<u64> {
        Some(self.every_steps).filter(|steps| *steps > 0)
    }

    fn on_snapshot(&mut self, _: &StepInfo, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.on_interrupt(state, snapshot)
    }

    fn on_save(&mut self, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.on_interrupt(state, snapshot)
    }

    fn on_interrupt(&mut self, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.restore_model(snapshot)?;
        if self.saved == Some((state.epochs_done, state.step)) {
            return Ok(());
        }
        self.save(&step_name(state.step), state, snapshot)
    }

    fn on_end_within_epoch(&mut self, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.on_interrupt(state, snapshot)?;
        self.leave_model(snapshot)
    }

    fn on_end(&mut self, state: &TrainState, snapshot: &dyn Snapshot) -> Result<()> {
        self.restore_model(snapshot)?;
        if state.partial.steps > 0 {
            // The loss is not finite, and neither may the network be: the saved files stay.
            return Ok(());
        }
        self.leave_model(snapshot)?;
        if self.saved == Some((state.epochs_done, state.step)) {
            return Ok(());
        }
        self.save(&epoch_name(state.epochs_done), state, snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state, step};

    fn options(every_epochs: u64, keep_last: usize, save_best: Option<&str>) -> CheckpointOptions {
        let save_best = save_best.map(str::to_owned);
        CheckpointOptions { every_epochs, keep_last, save_best, ..CheckpointOptions::default() }
    }

    /// Runs epochs with these validation accuracies, starting from `state`.
    fn epochs(observer: &mut Checkpoints, state: &mut TrainState, accuracies: &[f64]) {
        observer.on_begin(&run(20, state)).unwrap();
        for &val_acc in accuracies {
            state.epochs_done += 1;
            state.step += 10;
            let record = record(state.epochs_done, [1.0, 0.5, 1.0, val_acc]);
            state.history.push(record.clone());
            observer.on_epoch_end(&record, state, &Fake(state.step as f32)).unwrap();
        }
    }

    fn names(observer: &Checkpoints) -> Vec<String> {
        observer.store.list().unwrap().entries.into_iter().map(|entry| entry.name).collect()
    }

    /// The step at which the model file was written.
    fn model(folder: &Path) -> Option<f32> {
        let path = folder.join(MODEL_FILE);
        path.exists().then(|| load_tensors(path).unwrap().get("kernel").unwrap().data()[0])
    }

    #[test]
    fn every_second_epoch_and_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(2, 2, None);
        let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
        let mut state = state(vec![]);
        epochs(&mut observer, &mut state, &[0.1; 7]);
        assert_eq!(names(&observer), ["epoch-0004", "epoch-0006"]);
        assert_eq!(model(folder.path()), Some(60.0));
        observer.on_end(&state, &Fake(70.0)).unwrap();
        assert_eq!(names(&observer), ["epoch-0006", "epoch-0007"]);
        assert_eq!(model(folder.path()), Some(70.0));
        let found = observer.store.newest_valid::<serde_json::Value>().unwrap().found.unwrap();
        assert_eq!(found.state["step"], state.step);
        assert_eq!(found.tensors.get("velocity").unwrap().data(), [-70.0]);
    }

    #[test]
    fn the_best_is_kept_and_is_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(1, 2, Some("val_acc"));
        let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
        let mut state = state(vec![]);
        epochs(&mut observer, &mut state, &[0.3, 0.6, 0.6, 0.5, f64::INFINITY, 0.4]);
        assert_eq!(names(&observer), ["epoch-0002", "epoch-0005", "epoch-0006"]);
        assert_eq!(observer.best(), Some(&BestSoFar { name: "epoch-0002".into(), value: 0.6 }));
        assert_eq!(model(folder.path()), Some(20.0));
        observer.on_end(&state, &Fake(60.0)).unwrap();
        assert_eq!(model(folder.path()), Some(20.0), "the last epoch does not take the place of the best");
    }

    #[test]
    fn only_the_best_and_the_last_are_saved_with_period_zero() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(0, 0, Some("val_acc"));
        let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
        let mut state = state(vec![]);
        epochs(&mut observer, &mut state, &[0.3, 0.2, 0.4, 0.1]);
        assert_eq!(names(&observer), ["epoch-0001", "epoch-0003"]);
        observer.on_end(&state, &Fake(40.0)).unwrap();
        assert_eq!(names(&observer), ["epoch-0001", "epoch-0003", "epoch-0004"]);
    }

    #[test]
    fn a_resume_remembers_the_best() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(1, 2, Some("val_acc"));
        let mut state = state(vec![]);
        let mut before = Checkpoints::new(folder.path(), &config).unwrap();
        epochs(&mut before, &mut state, &[0.2, 0.6, 0.5]);
        let mut after = Checkpoints::new(folder.path(), &config).unwrap();
        epochs(&mut after, &mut state, &[0.4, 0.3]);
        assert_eq!(after.best(), before.best());
        assert_eq!(names(&after), ["epoch-0002", "epoch-0004", "epoch-0005"]);
        assert_eq!(model(folder.path()), Some(20.0));
        epochs(&mut after, &mut state, &[0.7]);
        assert_eq!(names(&after), ["epoch-0005", "epoch-0006"]);
        assert_eq!(model(folder.path()), Some(60.0));
    }

    /// A folder that never had the best epoch: its own first epoch is the best so far.
    #[test]
    fn the_best_of_another_folder_is_forgotten() {
        for restores in [false, true] {
            let new = |folder: &Path| match restores {
                true => Checkpoints::new(folder, &options(1, 2, None))?.best_weights(&EarlyStop::default()),
                false => Checkpoints::new(folder, &options(1, 2, Some("val_acc"))),
            };
            let [first, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let mut state = state(vec![]);
            let mut before = new(first.path()).unwrap();
            epochs(&mut before, &mut state, &[0.6, 0.6]);
            let mut after = new(other.path()).unwrap();
            epochs(&mut after, &mut state, &[0.4]);
            assert_eq!(model(other.path()), Some(30.0));
            epochs(&mut after, &mut state, &[0.3]);
            after.on_end(&state, &Fake(40.0)).unwrap();
            assert_eq!(model(other.path()), Some(30.0));
            assert_eq!(after.best().unwrap().name, "epoch-0003", "a resume there finds its own best");
        }
    }

    /// The best is requested when the model is the last epoch's: the model becomes the best one, or the best
    /// of the kept checkpoints.
    #[test]
    fn a_resume_that_asks_for_the_best_makes_it_the_model() {
        for (keep_last, kept, after) in [(3, 10.0, 1), (2, 30.0, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let mut state = state(vec![]);
            let plain = options(1, keep_last, None);
            let mut before = Checkpoints::new(folder.path(), &plain).unwrap();
            epochs(&mut before, &mut state, &[0.6, 0.4, 0.5]);
            assert_eq!(model(folder.path()), Some(30.0));
            let best = options(1, keep_last, Some("val_acc"));
            let mut observer = Checkpoints::new(folder.path(), &best).unwrap();
            epochs(&mut observer, &mut state, &[0.4]);
            assert_eq!(
                (observer.best().unwrap().name.clone(), model(folder.path())),
                (epoch_name(after), Some(kept))
            );
            // Also if the run is done, and the model was deleted.
            fs::remove_file(folder.path().join(MODEL_FILE)).unwrap();
            observer.on_begin(&run(20, &state)).unwrap();
            observer.on_end(&state, &Fake(40.0)).unwrap();
            assert_eq!(model(folder.path()), Some(kept));
        }
    }

    #[test]
    fn an_interrupt_saves_by_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(1, 0, None);
        let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
        let mut state = state(vec![]);
        epochs(&mut observer, &mut state, &[0.2]);
        observer.on_interrupt(&state, &Fake(10.0)).unwrap();
        assert_eq!(names(&observer), ["epoch-0001"], "nothing has changed since");
        state.step = 13;
        state.partial.steps = 3;
        observer.on_interrupt(&state, &Fake(13.0)).unwrap();
        assert_eq!(names(&observer), ["epoch-0001", "step-00000013"]);
        let found = observer.store.newest_valid::<serde_json::Value>().unwrap().found.unwrap();
        assert_eq!(
            (found.state["step"].as_u64(), found.tensors.get("kernel").unwrap().data()[0]),
            (Some(13), 13.0)
        );
        assert_eq!(model(folder.path()), Some(10.0));
    }

    #[test]
    fn a_backup_at_the_last_step_is_not_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = options(0, 0, None);
        config.every_steps = 5;
        let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
        let mut state = state(vec![]);
        observer.on_begin(&run(20, &state)).unwrap();
        let info = step(1, 0, 10);
        for step in [5, 10] {
            state.step = step;
            observer.on_snapshot(&info, &state, &Fake(step as f32)).unwrap();
        }
        assert_eq!(observer.snapshot_every(), Some(5));
        assert_eq!(names(&observer), ["step-00000005", "step-00000010"]);
        state.epochs_done = 1;
        observer.on_end(&state, &Fake(10.0)).unwrap();
        assert_eq!(names(&observer), ["step-00000005", "step-00000010", "epoch-0001"]);
        assert_eq!(model(folder.path()), Some(10.0));
    }

    #[test]
    fn an_ended_run_has_a_model_even_without_a_finite_metric() {
        for every in [5, 1] {
            let folder = tempfile::tempdir().unwrap();
            let config = options(every, 0, Some("val_acc"));
            let mut observer = Checkpoints::new(folder.path(), &config).unwrap();
            let mut state = state(vec![]);
            epochs(&mut observer, &mut state, &[f64::NAN, f64::NAN]);
            assert_eq!(model(folder.path()), None);
            observer.on_end(&state, &Fake(20.0)).unwrap();
            assert_eq!(model(folder.path()), Some(20.0), "with a checkpoint after every {every} epochs");
        }
    }

    #[test]
    fn the_folder_is_made_when_the_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let config = options(1, 0, None);
        let new = folder.path().join("runs/a");
        let mut observer = Checkpoints::new(&new, &config).unwrap();
        let mut state = state(vec![]);
        epochs(&mut observer, &mut state, &[0.5]);
        assert_eq!((names(&observer).len(), model(&new)), (1, Some(10.0)));
    }

    #[test]
    fn an_unknown_metric_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Checkpoints::new(folder.path(), &options(1, 0, Some("f1"))).unwrap_err().to_string();
        assert!(error.contains("`checkpoints.save_best` is \"f1\""), "{error}");
    }
}
