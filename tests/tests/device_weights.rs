//! Replicas of different speed take shares of different size, and the gradient remains that of the whole
//! batch.

use towers_config::{Config, DeviceWeights};
use towers_program::Device;
use towers_tests::{
    Finished, assert_near, assert_same, cpus, few_images, in_two_parts, keras_cnn_on_14, quick_on_14, run_in,
    trained,
};
use towers_train::Resume;

fn run(devices: &[Device], config: &Config) -> Finished {
    trained(devices, config, &few_images())
}

fn weighted(config: &Config, weights: &str) -> Config {
    config.with(|config| config.placement.device_weights = weights.parse().unwrap())
}

/// Every sample has the same weight on any replica. Some replicas get no samples of a last batch of three,
/// and still take part.
#[test]
fn uneven_slices_have_the_gradient_of_the_whole_batch() {
    let one = run(&cpus(1, 1), &keras_cnn_on_14());
    for weights in ["3,1", "1,6", "2,1,1", "1,1,10", "1,2,3,4"] {
        let config = weighted(&keras_cnn_on_14(), weights);
        let many = run(&cpus(weights.split(',').count(), 1), &config);
        assert_near(&one, &many, [2e-5, 1e-5], weights);
        assert_eq!(many.outcome.state.device_weights.to_string(), weights);
    }
}

/// The test above can fail: with batch normalization, other shares give other results.
#[test]
fn the_weights_are_taken() {
    let even = run(&cpus(2, 1), &quick_on_14());
    assert!(even.tensors != run(&cpus(2, 1), &weighted(&quick_on_14(), "3,1")).tensors);
}

/// With virtual replicas, weights assign shards to replicas, and no bit depends on them.
#[test]
fn virtual_replicas_have_the_same_bits_on_uneven_towers() {
    let mut config = quick_on_14();
    config.training.virtual_replicas = Some(5);
    let even = run(&cpus(1, 1), &config);
    for weights in ["3,1", "1,100", "1,2,1", "1,1,1,1"] {
        let replicas = weights.split(',').count();
        assert_same(&even, &run(&cpus(replicas, 1), &weighted(&config, weights)), weights);
    }
    assert_same(&even, &run(&cpus(2, 1), &weighted(&config, "auto")), "measured weights");
}

/// A replica is a pipeline here; its share is split into micro-batches.
#[test]
fn pipelines_have_weights_by_towers() {
    let one = run(&cpus(1, 1), &keras_cnn_on_14());
    let mut config = keras_cnn_on_14();
    (config.placement.devices.pipeline_stages, config.training.micro_batches) = (2, Some(2));
    for (weights, towers) in [("3,1", 2), ("1,2,2", 3)] {
        assert_near(&one, &run(&cpus(2 * towers, 1), &weighted(&config, weights)), [2e-5, 1e-5], weights);
    }
    let measured = run(&cpus(4, 1), &weighted(&config, "auto"));
    assert_near(&one, &measured, [2e-5, 1e-5], "measured weights");
    assert!(measured.outcome.state.device_weights.split(',').count() == 2);
}

/// The measurement has no side effects: the run equals one with given weights.
#[test]
fn measured_weights_are_as_good_as_given_ones() {
    let measured = run(&cpus(3, 1), &weighted(&quick_on_14(), "auto"));
    let weights = measured.outcome.state.device_weights.to_string();
    assert_eq!(weights.split(',').count(), 3, "{weights}");
    assert_same(&measured, &run(&cpus(3, 1), &weighted(&quick_on_14(), &weights)), &weights);
    let alone = run(&cpus(1, 1), &weighted(&quick_on_14(), "auto"));
    assert_eq!(alone.outcome.state.device_weights, "even");
    assert_same(&alone, &run(&cpus(1, 1), &quick_on_14()), "one replica");
}

/// Plain loops in f64 next to vectorized code: any clock shows the difference.
#[test]
fn the_slower_device_gets_less() {
    let mut config = weighted(&quick_on_14(), "auto");
    config.training.epochs = 1;
    let devices = [towers_tensor_cpu::reference(), towers_tensor_cpu::device(1)];
    let few = towers_cifar::synthetic(3, 28, 4);
    let state = trained(&devices, &config, &few).outcome.state;
    let DeviceWeights::Given(weights) = state.device_weights.parse().unwrap() else {
        panic!("{}", state.device_weights)
    };
    let shares = weights.share_out(100);
    assert!(shares[0] < shares[1] && weights.to_string().starts_with("1,"), "{weights}");
}

/// A resumed run has the weights of its checkpoint; with another number of replicas they are measured again.
#[test]
fn measured_weights_are_part_of_the_run() {
    let (two, config) = (cpus(2, 1), weighted(&quick_on_14(), "auto"));
    let (resume, resumed) = in_two_parts([&two, &two], &config, &few_images(), 5);
    let weights = resume.state.device_weights.to_string();
    assert_eq!(
        (&resume.config.placement.device_weights, weights.contains(',')),
        (&DeviceWeights::Auto, true)
    );
    assert_same(&run(&two, &weighted(&quick_on_14(), &weights)), &resumed, "resumed");
    let (_, three) = in_two_parts([&two, &cpus(3, 1)], &config, &few_images(), 5);
    assert_eq!(three.outcome.state.device_weights.split(',').count(), 3);
}

/// With virtual replicas, shards move while a run continues, and change no bit. This run resumes with one shard on
/// the first of two equal replicas and seven on the second, as if the machine had been another one.
#[test]
fn shards_move_to_the_faster_replica_and_change_no_bit() {
    let mut config = weighted(&quick_on_14(), "auto");
    config.training.virtual_replicas = Some(8);
    let (two, data) = (cpus(2, 1), few_images());
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), &two, &config, &data, None, Some(1)).unwrap();
    let mut resume = Resume::newest(dir.path()).unwrap();
    resume.state.device_weights = "1,100".into();
    let one = run(&cpus(1, 1), &weighted(&config, "even"));
    let moves = || {
        let resumed = run_in(dir.path(), &two, &config, &data, Some(&resume), None).unwrap();
        assert_same(&one, &resumed, "moved shards");
        let weights = resumed.outcome.state.device_weights.parse().unwrap();
        matches!(weights, DeviceWeights::Given(weights) if weights.share_out(8)[0] > 1)
    };
    // A clock decides, which other work on this machine may disturb once.
    assert!((0..20).any(|_| moves()), "no shard has moved");
}
