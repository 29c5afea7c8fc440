//! Runs on the CPU with activations in bf16: by its matrix units, or with the same bits by plain loops.

use towers_config::Config;
use towers_program::Device;
use towers_tensor_cpu::Cpu;
use towers_tests::{assert_same, cpus, few_images, in_two_parts, quick_on_14, trained};

fn devices(world: usize, threads: usize) -> Vec<Device> {
    let device = || Cpu::new(threads).with_bf16().unwrap_or_else(|| Cpu::new(threads).with_portable_bf16());
    (0..world).map(|_| device().into()).collect()
}

/// By four virtual replicas.
fn config() -> Config {
    quick_on_14().with(|config| config.training.virtual_replicas = Some(4))
}

#[test]
fn a_run_is_near_the_one_in_fp32() {
    let [narrow, wide] =
        [devices(1, 2), cpus(1, 2)].map(|devices| trained(&devices, &config(), &few_images()));
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
    let (one, config, data) = (devices(1, 1), config(), few_images());
    let straight = trained(&one, &config, &data);
    for (world, threads) in [(1, 3), (2, 1), (3, 2)] {
        let (devices, what) = (devices(world, threads), format!("{world} devices, {threads} threads"));
        assert_same(&straight, &trained(&devices, &config, &data), &what);
        assert_same(
            &straight,
            &in_two_parts([&one, &devices], &config, &data, 2).1,
            &format!("{what}, resumed"),
        );
    }
}
