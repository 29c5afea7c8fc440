//! With virtual replicas a run has the same bits on any number of devices.

use towers_config::Config;
use towers_program::{Device, Precision};
use towers_tests::{
    Finished, assert_same, assert_same_steps, cpus, emulated, failed, few_images, in_two_parts, quick_on_14,
    trained,
};

/// With clipped gradients, parameter groups and an average of the weights too. All shards of the last batch except the last are empty.
fn config(shards: Option<usize>) -> Config {
    let mut config = quick_on_14().with(|config| config.training.virtual_replicas = shards);
    config.training.optimizer = "sgd:momentum=0.9,global-clipnorm=0.5".parse().unwrap();
    config.training.param_groups =
        vec!["*/beta:lr-multiplier=2".parse().unwrap(), "dense/bias:epochs=1".parse().unwrap()];
    config.training.ema = Some("momentum=0.9,every=2,overwrite-frequency=2".parse().unwrap());
    config
}

fn run(devices: &[Device], config: &Config) -> Finished {
    trained(devices, config, &few_images())
}

#[test]
fn any_number_of_devices_trains_the_same_bits() {
    for shards in [4, 5, 7, 8] {
        let config = config(Some(shards));
        let one = run(&cpus(1, 1), &config);
        assert_eq!((one.outcome.state.step, one.outcome.state.history.len()), (8, 2));
        for (world, threads) in [(1, 3), (2, 1), (3, 2), (4, 1), (5, 1)] {
            if world > shards {
                continue;
            }
            let what = format!("{shards} shards on {world} devices");
            assert_same_steps(&one, &run(&cpus(world, threads), &config), &what);
        }
    }
}

/// Muon's matrices too.
#[test]
fn any_number_of_devices_makes_the_same_matrices_orthogonal() {
    let mut config = config(Some(4));
    config.training.optimizer =
        "muon:global-clipnorm=0.5,weight-decay=0.1+adamw:lr-multiplier=0.1".parse().unwrap();
    let one = run(&cpus(1, 1), &config);
    for (world, threads) in [(1, 3), (2, 1), (3, 2)] {
        assert_same_steps(&one, &run(&cpus(world, threads), &config), &format!("Muon on {world} devices"));
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
    for world in [1, 2, 3, 4, 5] {
        let plain = run(&cpus(world, 1), &config(None));
        let shards = run(&cpus(world, 1), &config(Some(world)));
        assert_same(&plain, &shards, &format!("{world} devices"));
        let alone = run(&cpus(1, 2), &config(Some(world)));
        assert_same(&plain, &alone, &format!("{world} shards on one device"));
    }
}

/// More shards than the batch has samples, and fewer test images than shards.
#[test]
fn shards_may_be_empty() {
    let mut config = config(Some(7));
    (config.training.epochs, config.training.global_batch_size) = (1, Some(6));
    let few = towers_cifar::synthetic(3, 20, 3);
    let run = |world| trained(&cpus(world, 1), &config, &few);
    let one = run(1);
    assert_eq!(one.outcome.state.step, 4);
    for world in [2, 4] {
        assert_same(&one, &run(world), &format!("{world} devices"));
    }
}

/// Stopped in the middle of an epoch on three devices, a run resumes on one or four with the same bits.
#[test]
fn a_run_goes_on_on_another_number_of_devices() {
    for shards in [4, 5] {
        let config = config(Some(shards));
        let straight = run(&cpus(2, 1), &config);
        for (world, stop_after) in [(1, 2), (4, 2), (4, 5)] {
            let devices: [&[Device]; 2] = [&cpus(3, 1), &cpus(world, 1)];
            let (resume, resumed) = in_two_parts(devices, &config, &few_images(), stop_after);
            assert!(resume.state.partial.steps > 0 && resume.config == config);
            let what =
                format!("{shards} shards, stopped after step {stop_after}, resumed on {world} devices");
            assert_same(&straight, &resumed, &what);
        }
    }
}

#[test]
fn fewer_shards_than_devices_are_an_error() {
    let told = failed(&cpus(3, 1), &config(Some(2)), &few_images()).to_string();
    assert!(told.starts_with("`virtual_replicas` is 2, but must be at least 3, or some of the 3 "), "{told}");
}

/// On GPUs every shard's pass has a separate graph from its third step on. Few images: emulated GPUs compute
/// on one core.
#[test]
fn gpus_train_the_same_bits_too() {
    let (Some(one), Some(other)) = (emulated(Precision::Fp32), emulated(Precision::Fp32)) else { return };
    let gpus = [one, other];
    let few = towers_cifar::synthetic(3, 31, 4);
    // Six: the first GPU has two partial sums before its last pass, and the second brings two.
    for shards in [3, 6] {
        let mut config = config(Some(shards));
        (config.training.global_batch_size, config.training.epochs) = (Some(7), 1);
        let alone = trained(&gpus[..1], &config, &few);
        assert_eq!(alone.outcome.state.step, 5);
        assert_same(&alone, &trained(&gpus, &config, &few), &format!("{shards} shards on two emulated GPUs"));
    }
}
