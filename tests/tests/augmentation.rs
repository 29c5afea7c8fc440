//! Augmentation in training runs: exact after a resume, the same for any number of threads, and on a GPU with
//! batches from the host where needed.

use augment::{ImageDataGenerator, RandAugment};
use program::Precision;
use towers_tests::{distance, run, run_on};
use train::callbacks::Checkpoints;
use train::{Config, Observer, Resume, cifar, recipe};

fn config(augmentation: ImageDataGenerator) -> Config {
    let mut config = recipe("quick").expect("it is built in");
    (config.training.epochs, config.training.batch_size) = (2, 8);
    config.training.schedule = "constant".parse().expect("it is well-formed");
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
    let data = cifar::synthetic(5, 36, 12);
    let config = config(everything());
    let straight = run(&config, &data, None, None, Vec::new()).expect("the run goes well");
    let parts = tempfile::tempdir().expect("there is room");
    let checkpoints: Vec<Box<dyn Observer>> = vec![Box::new(
        Checkpoints::new(parts.path(), &config.outputs.checkpoints).expect("the folder can be made"),
    )];
    run(&config, &data, None, Some(6), checkpoints).expect("the run goes well");
    let resume = Resume::newest(parts.path()).expect("the run was saved");
    assert_eq!(resume.config.training.augmentation, config.training.augmentation);
    let resumed = run(&config, &data, Some(&resume), None, Vec::new()).expect("the run goes well");
    assert!(straight.tensors == resumed.tensors, "not the same bits");
    // The number of replicas changes no draw either.
    let mut halves = config;
    (halves.training.virtual_replicas, halves.training.global_batch_size) = (Some(2), Some(8));
    let devices = |n| vec![tensor_cpu::device(1); n];
    let [one, two] = [1, 2].map(|n| {
        run_on(&devices(n), &halves, &data, None, None, Vec::new()).expect("the run goes well").tensors
    });
    assert!(one == two, "not the same bits on two replicas");
}

#[test]
fn a_gpu_has_the_host_make_what_it_cant() {
    let data = cifar::synthetic(5, 36, 12);
    let config = config(everything());
    let gpu = match tensor_cuda::emulated(Precision::Fp32) {
        Ok(gpu) => gpu,
        Err(why) => return println!("SKIPPED: emulated cuda: {why}"),
    };
    let [cpu, gpu] = [tensor_cpu::device(2), gpu]
        .map(|device| run_on(&[device], &config, &data, None, None, Vec::new()).expect("the run goes well"));
    let apart = distance(&cpu.tensors, &gpu.tensors);
    assert!(apart < 2e-3, "the tensors lie {apart} apart");
}
