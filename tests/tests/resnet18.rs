//! The recipe `resnet18`, whose layers are joined: stages, virtual replicas, synchronized batch
//! normalization, and a resume.

use towers_config::{Config, recipe};
use towers_program::Device;
use towers_tests::{Finished, assert_same, assert_same_steps, cpus, distance, run_in, trained};
use towers_train::{End, Resume};
use towers_trained::Classifier;

/// Two steps of four images an epoch.
fn config() -> Config {
    let mut config = recipe("resnet18").unwrap();
    (config.training.epochs, config.training.global_batch_size, config.training.lr) = (1, Some(4), 1e-3);
    config
}

fn run(devices: &[Device], config: &Config) -> Finished {
    trained(devices, config, &towers_cifar::synthetic(3, 8, 3))
}

#[test]
fn stages_and_towers_train_the_bits_of_two_virtual_replicas() {
    let one = run(&cpus(1, 2), &config().with(|config| config.training.virtual_replicas = Some(2)));
    let two = run(&cpus(2, 1), &config().with(|config| config.training.virtual_replicas = Some(2)));
    assert_same_steps(&one, &two, "two replicas");
    let mut split = config().with(|config| config.training.micro_batches = Some(2));
    (split.placement.devices.pipeline_stages, split.placement.devices.split_at) = (2, vec!["add_3".into()]);
    assert_same_steps(&one, &run(&cpus(2, 1), &split), "two stages");
}

#[test]
fn towers_normalize_together() {
    let config = config().with(|config| config.training.global_batch_size = Some(8));
    let one = run(&cpus(1, 2), &config);
    let [together, apart] = [true, false].map(|sync_batch_norm| {
        distance(
            &one.tensors,
            &run(&cpus(2, 1), &config.with(|config| config.training.sync_batch_norm = sync_batch_norm))
                .tensors,
        )
    });
    // With so few images every step amplifies differences of rounding.
    assert!(together < 0.2 && together * 10.0 < apart, "{together:e}, apart {apart:e}");
}

#[test]
fn a_run_that_stops_goes_on_bit_for_bit() {
    let (data, config, dir) = (towers_cifar::synthetic(3, 8, 3), config(), tempfile::tempdir().unwrap());
    let straight = run(&cpus(1, 2), &config);
    let stopped = run_in(dir.path(), &cpus(1, 2), &config, &data, None, Some(1)).unwrap();
    assert_eq!(stopped.outcome.end, End::Interrupted);
    let resume = Resume::newest(dir.path()).unwrap();
    let resumed = run_in(dir.path(), &cpus(1, 2), &config, &data, Some(&resume), None).unwrap();
    assert_same(&straight, &resumed, "resumed");
    // The values for standardizing pictures are stored with the model.
    let mut model = Classifier::load(dir.path(), &towers_tensor_cpu::device(1), 3).unwrap();
    let pictures = data.test.images.as_slice().unwrap();
    let predictions = model.classify(pictures).unwrap();
    assert!(predictions.iter().all(|one| (one.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-4));
}
