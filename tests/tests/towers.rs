//! Several replicas train like one replica on the whole batch.

use towers_tests::{distance, run};
use train::{Config, DeviceKind, cifar, recipe};

/// The tutorial's network without batch normalization, with dropout and augmentation, on batches of 14 of 45
/// images. There are three whole batches and one of three images, so with four replicas the last one has all
/// of it.
fn config(replicas: usize) -> Config {
    let mut config = recipe("keras-cnn").expect("it is built in");
    config.training.epochs = 1;
    config.training.global_batch_size = Some(14);
    // RMSprop divides by the size of the gradient and so amplifies rounding; SGD shows the gradients
    // directly.
    config.training.optimizer = "sgd:momentum=0.9".parse().expect("it is well-formed");
    config.training.lr = 0.01;
    config.placement.devices.device = DeviceKind::Cpu;
    config.placement.devices.replicas = replicas;
    config.placement.devices.threads = 2;
    config
}

#[test]
fn n_towers_equal_one_on_the_whole_batch() {
    let data = cifar::synthetic(3, 45, 23);
    let one = run(&config(1), &data, None, None, Vec::new()).unwrap();
    assert_eq!(one.losses.len(), 4);
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

/// Without the first sample's position, every replica would draw the same dropout masks, and the results
/// would differ. This test shows that the networks of the test above have learned something.
#[test]
fn training_moves_the_weights() {
    let data = cifar::synthetic(3, 45, 23);
    let mut still = config(1);
    still.training.lr = 0.0;
    let still = run(&still, &data, None, None, Vec::new()).unwrap();
    let moved = run(&config(1), &data, None, None, Vec::new()).unwrap();
    assert!(distance(&still.tensors, &moved.tensors) > 1e-2);
}

/// A batch per replica, as in the tutorials: three replicas with 5 samples make a global batch of 15.
#[test]
fn the_batch_size_is_per_replica() {
    let mut config = config(3);
    (config.training.batch_size, config.training.global_batch_size) = (5, None);
    let data = cifar::synthetic(3, 45, 4);
    let many = run(&config, &data, None, None, Vec::new()).unwrap();
    assert_eq!((many.outcome.state.global_batch, many.outcome.state.step), (15, 3));
}

/// With batch normalization every replica has its own statistics, as in Keras. A run still repeats bit for
/// bit with any number of threads.
#[test]
fn runs_repeat_bit_for_bit_for_any_number_of_threads() {
    let data = cifar::synthetic(3, 70, 20);
    for replicas in [1, 3] {
        let mut config = recipe("quick").expect("it is built in");
        config.training.epochs = 2;
        config.training.global_batch_size = Some(32);
        config.placement.devices.replicas = replicas;
        let run = |threads| {
            let mut config = config.clone();
            config.placement.devices.threads = threads;
            run(&config, &data, None, None, Vec::new()).unwrap()
        };
        let first = run(1);
        for threads in [1, 2, 5] {
            let again = run(threads * replicas);
            assert!(
                first.tensors == again.tensors,
                "{replicas} replicas, {threads} threads each: other weights"
            );
            assert_eq!(first.losses, again.losses);
        }
    }
}
