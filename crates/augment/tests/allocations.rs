//! In the steady state a loader allocates nothing. Alone in its binary: the count is for the whole process.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)]

use ndarray::Array4;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use towers_augment::{FillMode, ImageDataGenerator, Loader, LoaderOptions, Mean, RandAugment, Samples};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_steady_state_allocates_nothing() {
    let images = Array4::from_shape_fn((400, 8, 8, 3), |(n, y, x, c)| (n * 7 + y * 5 + x * 3 + c) as u8);
    let samples = Samples::new(images, vec![1; 400]).unwrap();
    let pipeline = ImageDataGenerator::new()
        .subtract_mean_first(Mean::per_pixel(samples.images().unwrap()).unwrap())
        .width_shift_range(0.4)
        .height_shift_range([0, 1, 3])
        .horizontal_flip(true)
        .vertical_flip(true)
        .fill_mode(FillMode::Reflect)
        .random_crop(2)
        .cutout(3)
        .rotation_range(20.0)
        .zoom_range(0.2)
        .channel_shift_range(10.0)
        .brightness_range([0.5, 1.5])
        .rand_augment(RandAugment::default())
        .samplewise_std_normalization(true)
        .mixup(0.2)
        .cutmix(1.0)
        .build([8, 8, 3])
        .unwrap();
    for workers in [0, 1, 3] {
        let options = LoaderOptions::new().batch_size(16).workers(workers).drop_last(true);
        let mut loader = Loader::new(samples.clone(), pipeline.clone(), options).unwrap();
        // A thread may start up late, and the standard library then sets up its own things: so the quietest
        // of a few epochs counts. A loader that allocates has no quiet one.
        let quietest = (0..8).map(|epoch| allocations_in(&mut loader, epoch)).min();
        assert_eq!(quietest, Some(0), "with {workers} workers");
    }
}

/// Allocations between the first and the last batch of an epoch. Two batches are held at a time, as by a
/// caller that copies one while it computes on another.
fn allocations_in(loader: &mut Loader, epoch: u64) -> usize {
    let mut batches = loader.epoch(epoch, 0).unwrap();
    let mut previous = batches.next().unwrap().unwrap();
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let mut images = previous.len();
    for batch in &mut batches {
        previous = batch.unwrap();
        images += previous.len();
    }
    let counted = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!((images, previous.len()), (400, 16));
    counted
}
