//! With `--sync-batch-norm`, several replicas train like one replica on the whole batch, with batch
//! normalization.

use towers_config::Config;
use towers_program::{Device, Precision};
use towers_tests::{
    Finished, assert_near, assert_same_steps, cpus, distance, emulated, few_images, in_two_parts,
    quick_on_14, trained,
};

fn config(sync_batch_norm: bool) -> Config {
    let mut config = quick_on_14();
    config.training.sync_batch_norm = sync_batch_norm;
    config.training.optimizer = "sgd:momentum=0.9".parse().unwrap();
    config.training.lr = 0.01;
    config
}

fn run(world: usize, config: &Config) -> Finished {
    trained(&cpus(world, 1), config, &few_images())
}

#[test]
fn n_towers_equal_one_on_the_whole_batch() {
    let one = run(1, &config(false));
    assert_eq!((one.outcome.state.step, one.outcome.state.history.len()), (8, 2));
    // A single replica has no other one to synchronize with.
    assert!(one.tensors == run(1, &config(true)).tensors);
    for world in 2..=4 {
        assert_near(&one, &run(world, &config(true)), [5e-4, 5e-4], &format!("{world} replicas"));
    }
}

/// The test above can fail: without the flag every replica normalizes only its share.
#[test]
fn towers_that_do_not_meet_train_something_else() {
    let one = run(1, &config(false));
    let apart = run(3, &config(false));
    assert!(distance(&one.tensors, &apart.tensors) > 1e-2);
    assert!(apart.tensors != run(3, &config(true)).tensors);
}

/// The difference of a single step between several replicas and one, with and without synchronization.
fn after_a_step(config: &Config, devices: impl Fn(usize) -> Vec<Device>, world: usize) -> [f64; 2] {
    let step = |world: usize, sync_batch_norm| {
        let config = config.with(|config| {
            config.training.epochs = 1;
            config.training.sync_batch_norm = sync_batch_norm;
            config.training.global_batch_size = Some(5);
        });
        let data = towers_cifar::synthetic(3, 5, 3);
        let finished = trained(&devices(world), &config, &data);
        assert_eq!(finished.outcome.state.step, 1);
        finished.tensors
    };
    let one = step(1, false);
    let distances = [true, false].map(|sync| distance(&one, &step(world, sync)));
    println!("{world} replicas after a step: {:e}, apart {:e}", distances[0], distances[1]);
    distances
}

/// All 19 normalizations of MiniGoogLeNet. With so few images its steps amplify every difference, so there is
/// only one step. In half of the runs rounding turns a ReLU on or off, and the result moves by up to 6e-2. A wrong
/// statistic moves it in each run.
#[test]
fn minigooglenet_too() {
    let config = config(true).with(|config| config.training.model = "minigooglenet".into());
    for world in [2, 3] {
        let is_exact = |seed| {
            let config = config.with(|config| config.training.seed = seed);
            let [together, apart] = after_a_step(&config, |world| cpus(world, 1), world);
            assert!(together * 10.0 < apart, "{world} replicas: {together:e}, apart {apart:e}");
            together < 1e-4
        };
        assert!((0..20).any(is_exact), "{world} replicas");
    }
}

/// A run repeats bit for bit; with as many virtual replicas as replicas it is the same run.
#[test]
fn runs_repeat_bit_for_bit_for_any_number_of_threads() {
    let config = config(true);
    let first = run(3, &config);
    for threads in [1, 2] {
        let again = trained(&cpus(3, threads), &config, &few_images());
        assert_same_steps(&first, &again, &format!("{threads} threads each"));
    }
    let shards = config.with(|config| config.training.virtual_replicas = Some(3));
    assert!(first.tensors == run(3, &shards).tensors);
}

/// Stopped in the middle of an epoch: the same bits with as many replicas, and the same results except for
/// rounding with others. Once in a while rounding decides which pixel a pooling takes, and the weights part. So
/// of three seeds two must agree.
#[test]
fn a_run_goes_on() {
    let seeds = [2, 3, 9].map(|seed| config(true).with(|config| config.training.seed = seed));
    let straight = seeds.each_ref().map(|config| run(3, config));
    for world in [3, 2, 1] {
        let mut distances: Vec<f64> = Vec::new();
        for (config, straight) in seeds.iter().zip(&straight) {
            let (resume, resumed) = in_two_parts([&cpus(3, 1), &cpus(world, 1)], config, &few_images(), 2);
            assert!(resume.config == *config && resume.state.partial.steps > 0);
            assert_eq!(straight.tensors == resumed.tensors, world == 3);
            distances.push(distance(&straight.tensors, &resumed.tensors));
        }
        let near = distances.iter().filter(|distance| **distance < 5e-4).count();
        assert!(near >= 2, "resumed on {world} replicas: the weights differ by {distances:?}");
    }
}

/// On GPUs such a pass is never captured. Few images: emulated GPUs compute on one core.
#[test]
fn gpus_train_the_same_too() {
    if emulated(Precision::Fp32).is_none() {
        return;
    }
    let gpus = |world: usize, precision| -> Vec<Device> {
        (0..world).map(|_| towers_tensor_cuda::emulated(precision).unwrap()).collect()
    };
    let mut config = config(true).with(|config| config.training.epochs = 1);
    config.training.global_batch_size = Some(4);
    let few = towers_cifar::synthetic(3, 17, 4);
    let run = |world| trained(&gpus(world, Precision::Fp32), &config, &few);
    let one = run(1);
    assert_eq!(one.outcome.state.step, 5);
    assert_near(&one, &run(2), [5e-4, 5e-4], "two emulated GPUs");
    // Half formats amplify a difference in the last bit: one step is enough to show the synchronization.
    config.training.arithmetic.precision = Precision::Bf16;
    let [together, apart] = after_a_step(&config, |world| gpus(world, Precision::Bf16), 2);
    assert!(together * 5.0 < apart, "{together:e}, apart {apart:e}");
}
