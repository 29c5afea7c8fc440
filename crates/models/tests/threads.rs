//! The recipes' networks give the same bits for any number of threads, at their own sizes.
#![allow(clippy::unwrap_used)]

use towers_layers::{Draws, Mode};
use towers_models::Model;
use towers_testkit::pattern;

/// All bits of a training pass's gradients and of the probabilities afterwards.
fn bits(model: &Model, threads: usize) -> Vec<u32> {
    let device = towers_tensor_cpu::device(threads);
    let mut network = model.build(&device, 8, Mode::Training).unwrap();
    network.init(2).unwrap();
    // Fewer samples than the network was built for, and not a multiple of the threads.
    let images: Vec<f32> = pattern(1, 7 * network.sample_len(), 1.0).iter().map(|&x| x as f32).collect();
    network.set_input(&images, &[0, 1, 2, 3, 4, 5, 6]).unwrap();
    network.train_pass(Draws { seed: 1, step: 2, first_sample: 3 }, 0.1, 7).unwrap();
    network.finish_step(7).unwrap();
    let grads = &network.arena().grads;
    let gradients = grads.to_vec(&device, 0, grads.len()).unwrap();
    let probabilities = network.predict().unwrap();
    assert!(probabilities.iter().all(|p| p.is_finite()));
    gradients.into_iter().chain(probabilities).map(f32::to_bits).collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for name in towers_models::NAMES {
        let model = towers_models::by_name(name, 10).unwrap().unwrap();
        let one = bits(&model, 1);
        for threads in [2, 3] {
            assert!(bits(&model, threads) == one, "{name} with {threads} threads");
        }
    }
}
