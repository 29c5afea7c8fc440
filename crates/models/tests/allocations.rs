//! Steps allocate nothing after a network has been built and stepped once. Alone in its test program: the
//! count is for the whole process, all threads.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use towers_layers::{Draws, Mode, Network};
use towers_models::Model;
use towers_optim::Sgd;
use towers_program::OptimizerState;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A training step and an evaluation, as the training loop makes them.
fn step(network: &mut Network, optimizer: &mut OptimizerState, images: &[f32], labels: &[u32], step: u64) {
    let global_batch = labels.len();
    network.set_input(images, labels).unwrap();
    network.train_pass(Draws { seed: 1, step, first_sample: 0 }, 0.1, global_batch).unwrap();
    network.finish_step(global_batch).unwrap();
    let device = network.device().clone();
    let arena = network.arena_mut();
    optimizer.step(&device, 1e-3, &mut arena.params, &mut arena.grads, arena.trainable).unwrap();
    network.evaluate_pass().unwrap();
    assert!(network.metrics().unwrap().loss_sum.is_finite());
}

fn check(name: &str, model: &Model) {
    let mut network = model.build(&towers_tensor_cpu::device(2), 8, Mode::Training).unwrap();
    network.init(1).unwrap();
    let sgd = Sgd::keras().momentum(0.9).nesterov();
    let mut optimizer = OptimizerState::new(network.device(), sgd, network.arena().params.len()).unwrap();
    let (images, labels) = (vec![0.5; 8 * network.sample_len()], [0, 1, 2, 3, 4, 5, 6, 7]);
    step(&mut network, &mut optimizer, &images, &labels, 0);
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    // Two whole batches, then a short one.
    for (number, n) in [(1, 8), (2, 8), (3, 5)] {
        let images = &images[..n * network.sample_len()];
        step(&mut network, &mut optimizer, images, &labels[..n], number);
    }
    let after = ALLOCATIONS.load(Ordering::SeqCst);
    assert_eq!(after - before, 0, "{name} allocates in its steps");
}

#[test]
fn steps_allocate_nothing() {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    drop(std::hint::black_box(vec![1]));
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), before + 1, "the counter counts");
    check("keras_cnn", &towers_models::keras_cnn(10).unwrap());
    check("minigooglenet", &towers_models::minigooglenet(10).unwrap());
    check("resnet18", &towers_models::resnet18(10).unwrap());
}
