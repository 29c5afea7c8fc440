//! Several replicas train like one replica on the whole batch.

use towers_config::{Config, DeviceKind, recipe};
use towers_tests::{
    assert_near, assert_same_steps, cpus, distance, few_images, keras_cnn_on_14, run, trained,
};

/// The tutorial's network without batch normalization, with dropout and augmentation. With four replicas the last
/// one has all of the last batch.
fn config(replicas: usize) -> Config {
    let mut config = keras_cnn_on_14();
    config.placement.devices.device = DeviceKind::Cpu;
    config.placement.devices.replicas = replicas;
    config.placement.devices.threads = 2;
    config
}

#[test]
fn n_towers_equal_one_on_the_whole_batch() {
    let data = few_images();
    let one = run(&config(1), &data, None, None, Vec::new()).unwrap();
    assert_eq!(one.losses.len(), 4);
    // The networks learn: the distances below are not small because nothing moves.
    let still = config(1).with(|config| config.training.lr = 0.0);
    assert!(distance(&trained(&cpus(1, 2), &still, &data).tensors, &one.tensors) > 1e-2);
    assert_eq!(one.outcome.state.history[0].epoch, 1);
    for replicas in 2..=4 {
        let many = run(&config(replicas), &data, None, None, Vec::new()).unwrap();
        assert_near(&one, &many, [2e-5, 1e-5], &format!("{replicas} replicas"));
    }
}

/// With batch normalization every replica has its own statistics, as in Keras. A run still repeats bit for
/// bit with any number of threads.
#[test]
fn runs_repeat_bit_for_bit_for_any_number_of_threads() {
    let data = towers_cifar::synthetic(3, 70, 20);
    let mut config = recipe("quick").unwrap();
    (config.training.epochs, config.training.global_batch_size) = (2, Some(32));
    for replicas in [1, 3] {
        let run = |threads| trained(&cpus(replicas, threads), &config, &data);
        let first = run(1);
        for threads in [1, 2, 5] {
            assert_same_steps(&first, &run(threads), &format!("{replicas} replicas, {threads} threads each"));
        }
    }
}
