//! Runs on the CPU with activations in bf16, on processors with matrix units for bf16.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use program::Device;
use tensor_cpu::Cpu;
use towers_tests::{cpus, run_in, run_on};
use train::{Config, Resume, cifar, recipe};

/// The devices, or the reason if the processor has no matrix units.
fn devices(world: usize, threads: usize) -> Option<Vec<Device>> {
    let devices: Option<Vec<Device>> =
        (0..world).map(|_| Some(Cpu::new(threads).with_bf16()?.into())).collect();
    if devices.is_none() {
        println!("SKIPPED: the processor has no units for bf16 (AMX)");
    }
    devices
}

/// Batches of 14 of 45 images, by four virtual replicas.
fn config() -> Config {
    let mut config = recipe("quick").unwrap();
    (config.training.epochs, config.training.global_batch_size, config.training.virtual_replicas) =
        (2, Some(14), Some(4));
    config.training.schedule = "constant".parse().unwrap();
    config
}

fn data() -> cifar::Dataset {
    cifar::synthetic(3, 45, 23)
}

#[test]
fn a_run_is_near_the_one_in_fp32() {
    let Some(narrow) = devices(1, 2) else { return };
    let run = |devices: &[Device]| run_on(devices, &config(), &data(), None, None, Vec::new()).unwrap();
    let (narrow, wide) = (run(&narrow), run(&cpus(1, 2)));
    assert!(narrow.tensors != wide.tensors);
    for (step, (narrow, wide)) in narrow.losses.iter().zip(&wide.losses).enumerate() {
        // Rounding grows from step to step.
        let most = 0.01 * wide * (step + 1) as f64;
        assert!((narrow - wide).abs() < most, "step {step}: a loss of {narrow} and not of {wide}");
    }
}

/// On any number of threads and devices, and after a resume on others in the middle of an epoch.
#[test]
fn a_run_has_the_same_bits_however_it_is_computed() {
    let Some(one) = devices(1, 1) else { return };
    let config = config();
    let straight = run_on(&one, &config, &data(), None, None, Vec::new()).unwrap();
    for (world, threads) in [(1, 3), (2, 1), (3, 2)] {
        let dir = tempfile::tempdir().unwrap();
        run_in(dir.path(), &one, &config, &data(), None, Some(2)).unwrap();
        let resume = Resume::newest(dir.path()).unwrap();
        let devices = devices(world, threads).unwrap();
        for resume in [None, Some(&resume)] {
            let run = run_in(dir.path(), &devices, &config, &data(), resume, None).unwrap();
            let what = format!("{world} devices, {threads} threads, resumed: {}", resume.is_some());
            assert_eq!(run.figures(), straight.figures(), "{what}");
            assert!(run.tensors == straight.tensors, "{what}: other weights");
        }
    }
}
