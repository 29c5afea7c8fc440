//! Failed runs end with a clear error and keep their files.

use towers_tests::{cpus, failed, few_images, run, run_in, trained};
use train::{Config, EpochRecord, Error, Flow, Observer, Resume, Snapshot, TrainState, cifar, recipe};

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
        let data = cifar::synthetic(5, 64, 16);
        let error = run_in(dir.path(), &cpus(replicas, 1), &config, &data, None, None).err().unwrap();
        assert!(matches!(&error, Error::NotFinite { epoch: 2, .. }), "{error}");
        let kept = Resume::newest(dir.path()).unwrap();
        assert_eq!(kept.state.epoch, 1);
    }
}

/// Ends a run after its first epoch, on the first replica only.
struct Ending(fn() -> train::callbacks::Result<Flow>);

impl Observer for Ending {
    fn on_epoch_end(
        &mut self,
        _: &EpochRecord,
        _: &TrainState,
        _: &dyn Snapshot,
    ) -> train::callbacks::Result<Flow> {
        self.0()
    }
}

/// The others are notified.
#[test]
fn an_observer_ends_all_towers() {
    let mut config = quick();
    config.placement.devices.replicas = 3;
    let ends = |how| run(&config, &few_images(), None, None, vec![Box::new(Ending(how))]);
    let error = ends(|| Err(train::callbacks::Error::other("the disk is gone"))).err().unwrap();
    assert_eq!(error.to_string(), "the disk is gone");
    let outcome = ends(|| Ok(Flow::Stop("enough".into()))).unwrap().outcome;
    assert_eq!((outcome.end, outcome.state.epoch), (train::End::Stopped("enough".into()), 1));
}

/// The last batch has fewer samples than replicas: some get none of it.
#[test]
fn towers_without_samples_take_part() {
    let mut config = quick();
    (config.training.epochs, config.training.global_batch_size) = (1, Some(4));
    assert_eq!(trained(&cpus(4, 1), &config, &cifar::synthetic(5, 9, 3)).outcome.state.step, 3);
}

#[test]
fn a_run_needs_data_to_train_and_to_validate_on() {
    for (train, test) in [(0, 3), (32, 0)] {
        let error = failed(&cpus(1, 1), &quick(), &cifar::synthetic(5, train, test));
        assert!(matches!(error, Error::Option { .. }), "{error}");
    }
}
