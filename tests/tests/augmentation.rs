//! Augmentation in training runs: exact after a resume, the same for any number of threads, and on a GPU with
//! batches from the host where needed.

use towers_augment::{ImageDataGenerator, RandAugment};
use towers_config::{Config, recipe};
use towers_program::Precision;
use towers_tests::{assert_same, cpus, distance, emulated, in_two_parts, trained};

fn config(augmentation: ImageDataGenerator) -> Config {
    let mut config = recipe("quick").unwrap();
    (config.training.epochs, config.training.batch_size) = (2, 8);
    config.training.schedule = "constant".parse().unwrap();
    config.training.lr = 1e-3;
    config.training.augmentation = augmentation;
    config
}

fn everything() -> ImageDataGenerator {
    ImageDataGenerator::new()
        .rotation_range(20.0)
        .width_shift_range(0.1)
        .shear_range(5.0)
        .zoom_range(0.1)
        .channel_shift_range(20.0)
        .brightness_range([0.8, 1.2])
        .alternating_flip(true)
        .rand_augment(RandAugment::default())
        .featurewise_std_normalization(true)
        .mixup(0.4)
        .cutmix(1.0)
}

#[test]
fn a_run_goes_on_bit_for_bit_with_every_option() {
    let (data, config, cpu) = (towers_cifar::synthetic(5, 36, 12), config(everything()), cpus(1, 2));
    let (resume, resumed) = in_two_parts([&cpu, &cpu], &config, &data, 6);
    assert_eq!(resume.config.training.augmentation, config.training.augmentation);
    assert_same(&trained(&cpu, &config, &data), &resumed, "resumed");
    // The number of replicas changes no draw either.
    let mut halves = config;
    (halves.training.virtual_replicas, halves.training.global_batch_size) = (Some(2), Some(8));
    let [one, two] = [1, 2].map(|n| trained(&cpus(n, 1), &halves, &data));
    assert_same(&one, &two, "two replicas");
}

#[test]
fn a_gpu_has_the_host_make_what_it_cant() {
    // With some data, a number so near to 0 that rounding decides its gradient makes the runs part.
    let (data, config) = (towers_cifar::synthetic(6, 36, 12), config(everything()));
    let Some(gpu) = emulated(Precision::Fp32) else { return };
    let [cpu, gpu] = [towers_tensor_cpu::device(2), gpu].map(|device| trained(&[device], &config, &data));
    let apart = distance(&cpu.tensors, &gpu.tensors);
    assert!(apart < 2e-3, "the tensors lie {apart} apart");
}
