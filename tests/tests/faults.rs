//! Failed runs end with a clear error and keep their files.

use towers_tests::run;
use train::callbacks::Checkpoints;
use train::{Config, EpochRecord, Error, Flow, Observer, Resume, Snapshot, TrainState, cifar, recipe};

fn quick() -> Config {
    let mut config = recipe("quick").expect("it is built in");
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
    config.training.schedule = "milestones:at=1,factor=1e30".parse().expect("it is well-formed");
    for replicas in [1, 2] {
        config.placement.devices.replicas = replicas;
        let checkpoints: Vec<Box<dyn Observer>> =
            vec![Box::new(Checkpoints::new(dir.path(), &config.outputs.checkpoints).unwrap())];
        let error = run(&config, &cifar::synthetic(5, 64, 16), None, None, checkpoints).err().unwrap();
        assert!(matches!(&error, Error::NotFinite { epoch: 2, .. }), "{error}");
        let kept = Resume::newest(dir.path()).unwrap();
        assert_eq!(kept.state.epoch, 1);
    }
}

/// Fails in the middle of a run, on the first replica.
struct Failing;

impl Observer for Failing {
    fn on_epoch_end(
        &mut self,
        _: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> train::callbacks::Result<Flow> {
        Err(train::callbacks::Error::other("the disk is gone"))
    }
}

#[test]
fn an_observers_error_ends_all_towers() {
    let mut config = quick();
    config.placement.devices.replicas = 3;
    let error =
        run(&config, &cifar::synthetic(5, 64, 16), None, None, vec![Box::new(Failing)]).err().unwrap();
    assert_eq!(error.to_string(), "the disk is gone");
}

/// Stops after the first epoch, on the first replica only: the others are notified.
struct Enough;

impl Observer for Enough {
    fn on_epoch_end(
        &mut self,
        _: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> train::callbacks::Result<Flow> {
        Ok(Flow::Stop("enough".into()))
    }
}

#[test]
fn an_early_stop_is_agreed_on() {
    let mut config = quick();
    config.placement.devices.replicas = 3;
    let finished = run(&config, &cifar::synthetic(5, 64, 16), None, None, vec![Box::new(Enough)]).unwrap();
    assert_eq!(finished.outcome.end, train::End::Stopped("enough".into()));
    assert_eq!(finished.outcome.state.epoch, 1);
}

/// The last batch has fewer samples than replicas: some get none of it.
#[test]
fn towers_without_samples_take_part() {
    let mut config = quick();
    config.training.epochs = 1;
    config.training.global_batch_size = Some(4);
    config.placement.devices.replicas = 4;
    let finished = run(&config, &cifar::synthetic(5, 9, 3), None, None, Vec::new()).unwrap();
    assert_eq!(finished.outcome.state.step, 3);
}

#[test]
fn a_run_needs_data_to_train_and_to_validate_on() {
    for (train, test) in [(0, 3), (32, 0)] {
        let error = run(&quick(), &cifar::synthetic(5, train, test), None, None, Vec::new()).err().unwrap();
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}
