//! Several replicas train like one replica on the whole batch.

use towers_tests::{assert_same_steps, cpus, distance, few_images, run, trained};
use train::{Config, DeviceKind, cifar, recipe};

/// The tutorial's network without batch normalization, with dropout and augmentation. With four replicas the last
/// one has all of the last batch.
fn config(replicas: usize) -> Config {
    let mut config = recipe("keras-cnn").unwrap();
    config.training.epochs = 1;
    config.training.global_batch_size = Some(14);
    // RMSprop divides by the size of the gradient and so amplifies rounding; SGD shows the gradients
    // directly.
    config.training.optimizer = "sgd:momentum=0.9".parse().unwrap();
    config.training.lr = 0.01;
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
        let distance = distance(&one.tensors, &many.tensors);
        assert!(distance < 2e-5, "{replicas} replicas: the weights differ by {distance:e}");
        let (a, b) = (&one.outcome.state.history[0], &many.outcome.state.history[0]);
        assert!((a.loss - b.loss).abs() < 1e-5 && (a.val_loss - b.val_loss).abs() < 1e-5, "{a:?}\n{b:?}");
        assert_eq!((a.acc, a.val_acc), (b.acc, b.val_acc), "{replicas} replicas");
    }
}

/// With batch normalization every replica has its own statistics, as in Keras. A run still repeats bit for
/// bit with any number of threads.
#[test]
fn runs_repeat_bit_for_bit_for_any_number_of_threads() {
    let data = cifar::synthetic(3, 70, 20);
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
