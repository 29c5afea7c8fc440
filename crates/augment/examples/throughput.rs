//! Images a second on one core, and how fast one draws for a device that moves images by itself: `cargo run --release -p augment --example throughput`.

use augment::{Error, FillMode, ImageDataGenerator, LoaderOptions, Mean, Pipeline, Scratch};
use std::hint::black_box;
use std::time::Instant;

const SHAPE: [usize; 3] = [32, 32, 3];
const IMAGES: usize = 512;

fn images_per_second(pipeline: &Pipeline, images: &[u8]) -> Result<f64, Error> {
    let len = pipeline.image_len();
    let (mut out, mut scratch) = (vec![0.0; len], Scratch::default());
    let (start, mut epoch) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < 0.5 {
        for (sample, image) in images.chunks_exact(len).enumerate() {
            let draws = pipeline.draw(1, epoch, sample as u32);
            pipeline.apply(&draws, image, black_box(&mut out), &mut scratch)?;
        }
        epoch += 1;
    }
    Ok(epoch as f64 * IMAGES as f64 / start.elapsed().as_secs_f64())
}

/// The best of five epochs of 50,000 placements, in milliseconds.
fn milliseconds_to_place(pipeline: &Pipeline) -> f64 {
    let options = LoaderOptions::new().seed(1);
    let place = |epoch| {
        let start = Instant::now();
        black_box(pipeline.placements(&options, epoch, &options.order(epoch, 50_000)));
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..5).map(place).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Error> {
    let images: Vec<u8> = (0..IMAGES * 32 * 32 * 3).map(|k| (k * 31 % 251) as u8).collect();
    let mean = Mean::PerPixel { shape: SHAPE, values: vec![120.0; 32 * 32 * 3] };
    let shift = ImageDataGenerator::new().width_shift_range(0.1).height_shift_range(0.1);
    let pipelines = [
        ("evaluation, rescale", ImageDataGenerator::new().rescale(1.0 / 255.0)),
        ("shift", shift.clone()),
        ("shift + flip, rescale", shift.clone().horizontal_flip(true).rescale(1.0 / 255.0)),
        ("mean first, shift + flip", shift.horizontal_flip(true).subtract_mean_first(mean)),
        (
            "crop + flip + cutout",
            ImageDataGenerator::new()
                .random_crop(4)
                .fill_mode(FillMode::Reflect)
                .horizontal_flip(true)
                .cutout(8),
        ),
    ];
    for (name, options) in pipelines {
        let pipeline = options.build(SHAPE)?;
        let (rate, place) = (images_per_second(&pipeline, &images)?, milliseconds_to_place(&pipeline));
        println!("{name:26} {rate:>9.0} images/s, 50,000 placements in {place:>5.1} ms");
    }
    Ok(())
}
