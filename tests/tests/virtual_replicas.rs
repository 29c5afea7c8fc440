//! With virtual replicas a run has the same bits on any number of devices.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use program::{Device, Precision};
use towers_tests::{Finished, cpus, run_in, run_on};
use train::{Config, End, Error, Resume, cifar, recipe};

/// Batch normalization, dropout and augmentation, parameter groups and an average of the weights. Batches of
/// 14 of 45 images: three whole ones, and one of three images, in which all shards except the last are empty.
fn config(shards: Option<usize>) -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = 2;
    config.training.global_batch_size = Some(14);
    config.training.virtual_replicas = shards;
    // Nothing here depends on the number of epochs.
    config.training.schedule = "constant".parse().unwrap();
    config.training.param_groups =
        vec!["*/beta:lr-multiplier=2".parse().unwrap(), "dense/bias:epochs=1".parse().unwrap()];
    config.training.ema = Some("momentum=0.9,every=2,overwrite-frequency=2".parse().unwrap());
    config
}

fn data() -> cifar::Dataset {
    cifar::synthetic(3, 45, 23)
}

fn run(devices: &[Device], config: &Config) -> Finished {
    run_on(devices, config, &data(), None, None, Vec::new()).unwrap()
}

fn assert_same(a: &Finished, b: &Finished, what: &str) {
    assert_eq!(a.outcome.state.step, b.outcome.state.step, "{what}");
    assert_eq!(a.figures(), b.figures(), "{what}: another history");
    assert!(a.tensors == b.tensors, "{what}: other weights");
}

#[test]
fn any_number_of_devices_trains_the_same_bits() {
    for shards in [4, 5] {
        let config = config(Some(shards));
        let one = run(&cpus(1, 1), &config);
        assert_eq!((one.outcome.state.step, one.outcome.state.history.len()), (8, 2));
        for (world, threads) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
            let many = run(&cpus(world, threads), &config);
            assert_same(&one, &many, &format!("{shards} shards on {world} devices"));
            assert_eq!(one.losses, many.losses, "{shards} shards on {world} devices");
        }
    }
}

/// The test above can fail: without virtual replicas every replica normalizes only its share.
#[test]
fn other_shards_are_another_run() {
    let four = run(&cpus(2, 1), &config(Some(4)));
    for (world, shards) in [(2, None), (1, None), (2, Some(5)), (2, Some(2))] {
        let other = run(&cpus(world, 1), &config(shards));
        assert!(four.tensors != other.tensors, "{shards:?} on {world} devices");
        assert_ne!(four.figures(), other.figures());
    }
}

#[test]
fn one_shard_a_device_is_the_plain_run() {
    for world in [1, 2, 3] {
        let plain = run(&cpus(world, 1), &config(None));
        let shards = run(&cpus(world, 1), &config(Some(world)));
        assert_same(&plain, &shards, &format!("{world} devices"));
        assert_same(
            &plain,
            &run(&cpus(1, 2), &config(Some(world))),
            &format!("{world} shards on one device"),
        );
    }
}

/// More shards than the batch has samples, and fewer test images than shards.
#[test]
fn shards_may_be_empty() {
    let mut config = config(Some(7));
    (config.training.epochs, config.training.global_batch_size) = (1, Some(6));
    let few = cifar::synthetic(3, 20, 3);
    let run = |world| run_on(&cpus(world, 1), &config, &few, None, None, Vec::new()).unwrap();
    let one = run(1);
    assert_eq!(one.outcome.state.step, 4);
    for world in [2, 4] {
        assert_same(&one, &run(world), &format!("{world} devices"));
    }
}

/// A batch for each virtual replica, whatever the number of devices.
#[test]
fn the_batch_size_is_per_virtual_replica() {
    let mut config = config(Some(3));
    (config.training.batch_size, config.training.global_batch_size, config.training.epochs) = (5, None, 1);
    for world in [1, 2] {
        let state = run(&cpus(world, 1), &config).outcome.state;
        assert_eq!((state.global_batch, state.step), (15, 3));
    }
}

/// Stopped in the middle of an epoch on three devices, a run resumes on one or four with the same bits.
#[test]
fn a_run_goes_on_on_another_number_of_devices() {
    for shards in [4, 5] {
        let config = config(Some(shards));
        let straight = run(&cpus(2, 1), &config);
        for (world, stop_after) in [(1, 2), (4, 2), (4, 5)] {
            let dir = tempfile::tempdir().unwrap();
            let stopped = run_in(dir.path(), &cpus(3, 1), &config, &data(), None, Some(stop_after)).unwrap();
            assert_eq!(stopped.outcome.end, End::Interrupted);
            let resume = Resume::newest(dir.path()).unwrap();
            assert!(resume.state.partial.steps > 0 && resume.config == config);
            let resumed = run_in(dir.path(), &cpus(world, 1), &config, &data(), Some(&resume), None).unwrap();
            let what =
                format!("{shards} shards, stopped after step {stop_after}, resumed on {world} devices");
            assert_same(&straight, &resumed, &what);
        }
    }
}

#[test]
fn fewer_shards_than_devices_are_an_error() {
    for (shards, world, says) in [
        (2, 3, "`virtual_replicas` is 2, but must be at least 3"),
        (0, 1, "`virtual_replicas` is 0, but must be a whole number from 1"),
        (1 << 20, 1, "`virtual_replicas` is 1048576"),
    ] {
        let error = run_on(&cpus(world, 1), &config(Some(shards)), &data(), None, None, Vec::new());
        let error = error.err().unwrap();
        assert!(
            matches!(error, Error::Option { .. } | Error::Key(_)) && error.to_string().contains(says),
            "{error}"
        );
    }
}

/// On GPUs every shard's pass has a separate graph from its third step on. Few images: emulated GPUs compute
/// on one core.
#[test]
fn gpus_train_the_same_bits_too() {
    let open = || tensor_cuda::emulated(Precision::Fp32);
    if let Err(why) = open() {
        println!("SKIPPED: emulated cuda: {why}");
        return;
    }
    let gpus = |world: usize| (0..world).map(|_| open().unwrap()).collect::<Vec<_>>();
    let mut config = config(Some(3));
    (config.training.global_batch_size, config.training.epochs) = (Some(7), 1);
    let few = cifar::synthetic(3, 31, 4);
    let run = |world| run_on(&gpus(world), &config, &few, None, None, Vec::new()).unwrap();
    let one = run(1);
    assert_eq!(one.outcome.state.step, 5);
    assert_same(&one, &run(2), "two emulated GPUs");
}
