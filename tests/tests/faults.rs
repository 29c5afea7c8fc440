//! Failed runs end with a clear error and keep their files.

use std::sync::{Arc, Mutex};
use towers_callbacks::{self, Checkpoints};
use towers_callbacks::{EpochRecord, Flow, Snapshot, StepInfo, TrainState};
use towers_config::{Config, recipe};
use towers_tests::{assert_same, cpus, failed, few_images, run, run_in, trained};
use towers_train::{End, Error, Observer, Resume};

fn quick() -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = 3;
    config.training.batch_size = 16;
    config.placement.devices.threads = 1;
    config
}

/// The loss diverges in the second epoch: the error names the step, and the first epoch's checkpoint exists.
#[test]
fn a_nan_loss_stops_the_run_and_keeps_the_last_good_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    config.training.schedule = "milestones:at=1,factor=1e30".parse().unwrap();
    for replicas in [1, 2] {
        let data = towers_cifar::synthetic(5, 64, 16);
        let error = run_in(dir.path(), &cpus(replicas, 1), &config, &data, None, None).err().unwrap();
        assert!(matches!(&error, Error::NotFinite { epoch: 2, .. }), "{error}");
        let kept = Resume::newest(dir.path()).unwrap();
        assert_eq!(kept.state.epochs_done, 1);
    }
}

/// Ends a run after its first epoch, on the first replica only.
struct Ending(fn() -> towers_callbacks::Result<Flow>);

impl Observer for Ending {
    fn on_epoch_end(
        &mut self,
        _: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> towers_callbacks::Result<Flow> {
        self.0()
    }
}

/// The others are notified.
#[test]
fn an_observer_ends_all_towers() {
    let mut config = quick();
    config.placement.devices.replicas = 3;
    let ends = |how| run(&config, &few_images(), None, None, vec![Box::new(Ending(how))]);
    let error = ends(|| Err(towers_callbacks::Error::other("the disk is gone"))).err().unwrap();
    assert_eq!(error.to_string(), "the disk is gone");
    let outcome = ends(|| Ok(Flow::Stop("enough".into()))).unwrap().outcome;
    assert_eq!((outcome.end, outcome.state.epochs_done), (End::Stopped("enough".into()), 1));
}

/// Fails at a step of the second epoch, or at the end of the first one. It keeps the warnings that it hears.
#[derive(Clone, Default)]
struct Failing {
    at_step: bool,
    is_optional: bool,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Observer for Failing {
    fn is_optional(&self) -> bool {
        self.is_optional
    }

    fn on_warning(&mut self, warning: &str) -> towers_callbacks::Result<()> {
        self.warnings.lock().unwrap().push(warning.to_owned());
        Ok(())
    }

    fn on_step(&mut self, step: &StepInfo) -> towers_callbacks::Result<()> {
        let fails = self.at_step && (step.epoch, step.steps_done) == (2, 2);
        if fails { Err(towers_callbacks::Error::other("the log broke")) } else { Ok(()) }
    }

    fn on_epoch_end(
        &mut self,
        record: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> towers_callbacks::Result<Flow> {
        let fails = !self.at_step && record.epoch == 1;
        if fails { Err(towers_callbacks::Error::other("the log broke")) } else { Ok(Flow::Continue) }
    }
}

/// Whatever comes before the checkpoints. A resume goes on as if nothing had happened.
#[test]
fn a_run_is_saved_before_it_ends_by_an_observer() {
    let data = few_images();
    for (replicas, at_step, saved) in [(1, true, 6), (3, true, 6), (1, false, 4), (3, false, 4)] {
        let (dir, mut config) = (tempfile::tempdir().unwrap(), quick());
        (config.training.epochs, config.placement.devices.replicas) = (2, replicas);
        config.training.global_batch_size = Some(16);
        config.outputs.checkpoints.every_epochs = 5;
        let checkpoints = || {
            Box::new(Checkpoints::new(dir.path(), &config.outputs.checkpoints).unwrap()) as Box<dyn Observer>
        };
        let failing = Box::new(Failing { at_step, ..Failing::default() });
        let error = run(&config, &data, None, None, vec![failing, checkpoints()]).err().unwrap();
        assert_eq!(error.to_string(), "the log broke");
        let resume = Resume::newest(dir.path()).unwrap();
        // The step after the failure is the last one.
        assert_eq!(resume.state.step, saved, "{replicas} replicas");
        let resumed = run(&config, &data, Some(&resume), None, vec![checkpoints()]).unwrap();
        assert_same(&resumed, &run(&config, &data, None, None, vec![]).unwrap(), "resumed");
    }
}

#[test]
fn a_run_goes_on_without_a_log_that_failed() {
    for at_step in [true, false] {
        let log = Failing { at_step, is_optional: true, ..Failing::default() };
        let other = Failing { at_step: true, is_optional: true, ..Failing::default() };
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(log.clone()), Box::new(other.clone())];
        let mut config = quick();
        config.training.epochs = 2;
        assert_eq!(run(&config, &few_images(), None, None, observers).unwrap().outcome.end, End::Done);
        let warnings = |log: Failing| {
            let mut all = Arc::try_unwrap(log.warnings).unwrap().into_inner().unwrap();
            all.retain(|warning| warning.starts_with("the log broke"));
            all
        };
        let says = "the log broke; the run goes on without it";
        // A log that failed hears no more.
        assert_eq!(warnings(log), [""; 0]);
        assert_eq!(warnings(other), if at_step { vec![] } else { vec![says.to_owned()] });
    }
}

/// One step, whose loss is fine, and the weights after it are huge.
#[test]
fn a_validation_loss_that_is_no_number_is_kept_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick();
    (config.training.epochs, config.training.lr, config.training.global_batch_size) = (1, 1e30, Some(64));
    let listener = Failing { at_step: true, ..Failing::default() };
    let observers = || -> Vec<Box<dyn Observer>> {
        let checkpoints = Checkpoints::new(dir.path(), &config.outputs.checkpoints).unwrap();
        vec![Box::new(checkpoints), Box::new(listener.clone())]
    };
    let outcome = run(&config, &few_images(), None, None, observers()).unwrap().outcome;
    assert!(
        outcome.end == End::Done && !outcome.state.history[0].metrics["val_loss"].is_finite(),
        "{outcome:?}"
    );
    let warnings = listener.warnings.lock().unwrap().concat();
    assert!(warnings.contains("the validation loss is not finite"), "{warnings}");
    let resume = Resume::newest(dir.path()).unwrap();
    assert!(resume.state.epochs_done == 1 && resume.state.history[0].metrics["val_loss"].is_nan());
    config.outputs.terminate_on_nan = true;
    let outcome = run(&config, &few_images(), None, None, vec![]).unwrap().outcome;
    assert!(matches!(outcome.end, End::Stopped(_)) && outcome.state.epochs_done == 0, "{outcome:?}");
}

/// The last batch has fewer samples than replicas: some get none of it.
#[test]
fn towers_without_samples_take_part() {
    let mut config = quick();
    (config.training.epochs, config.training.global_batch_size) = (1, Some(4));
    assert_eq!(trained(&cpus(4, 1), &config, &towers_cifar::synthetic(5, 9, 3)).outcome.state.step, 3);
}

#[test]
fn a_run_needs_data_to_train_and_to_validate_on() {
    for (train, test) in [(0, 3), (32, 0)] {
        let error = failed(&cpus(1, 1), &quick(), &towers_cifar::synthetic(5, train, test));
        assert!(matches!(error, Error::Config(towers_config::Error::Option(_))), "{error}");
    }
}
