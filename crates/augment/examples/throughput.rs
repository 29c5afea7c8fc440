//! Images a second on one core, 32x32 RGB: `cargo run --release -p towers-augment --example throughput`. Prints a JSON object a line.
//!
//! `docs/benchmarks/augment_throughput.py` measures Keras' ImageDataGenerator and torchvision on the same operations.

use std::hint::black_box;
use std::time::Instant;
use towers_augment::{
    Draws, Error, FillMode, ImageDataGenerator, LoaderOptions, Mean, Pipeline, RandAugment,
    RandomResizedCrop, Scratch,
};

const SHAPE: [usize; 3] = [32, 32, 3];
/// Lists of torchvision's transforms.
const LISTS: [&str; 9] = [
    "rand-augment",
    "trivial-augment-wide",
    "auto-augment:policy=cifar10",
    "aug-mix",
    "color-jitter:brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1",
    "random-perspective:p=1",
    "gaussian-blur:kernel-size=3",
    "random-erasing:p=1",
    "random-horizontal-flip+trivial-augment-wide+random-erasing:p=0.25",
];
const IMAGES: usize = 512;
const ROUNDS: usize = 5;

/// The median of some rounds, in images a second.
fn images_per_second(pipeline: &Pipeline, images: &[u8]) -> Result<f64, Error> {
    let len = pipeline.image_len();
    let (mut out, mut scratch, mut epoch) = (vec![0.0; len], Scratch::default(), 0);
    let mut rounds = [0.0; ROUNDS];
    for rate in &mut rounds {
        let (start, first) = (Instant::now(), epoch);
        while start.elapsed().as_secs_f64() < 0.3 {
            for (sample, image) in images.chunks_exact(len).enumerate() {
                let draws: Draws = pipeline.draw(1, epoch, sample as u32);
                pipeline.apply(&draws, image, black_box(&mut out), &mut scratch)?;
            }
            epoch += 1;
        }
        *rate = (epoch - first) as f64 * IMAGES as f64 / start.elapsed().as_secs_f64();
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}

/// The best of five epochs of the places of 50,000 images, in milliseconds.
fn milliseconds_to_place(pipeline: &Pipeline) -> f64 {
    let options = LoaderOptions::new().seed(1);
    let place = |epoch| {
        let start = Instant::now();
        for sample in options.order(epoch, &[0; 50_000]) {
            pipeline.places(&pipeline.draw(1, epoch, sample)).into_iter().flatten().for_each(|place| {
                black_box(place);
            });
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..5).map(place).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Error> {
    let images: Vec<u8> = (0..IMAGES * 32 * 32 * 3).map(|k| (k * 31 % 251) as u8).collect();
    let mean = Mean::PerPixel { shape: SHAPE, values: vec![120.0; 32 * 32 * 3] };
    let new = ImageDataGenerator::new;
    let shift = || new().width_shift_range(0.1).height_shift_range(0.1);
    let affine = || shift().rotation_range(15.0).zoom_range(0.2).horizontal_flip(true);
    for (operations, options) in [
        ("rescale", new().rescale(1.0 / 255.0)),
        ("shift", shift()),
        ("shift+flip", shift().horizontal_flip(true)),
        ("shift+flip+rescale", shift().horizontal_flip(true).rescale(1.0 / 255.0)),
        ("mean first+shift+flip", shift().horizontal_flip(true).subtract_mean_first(mean)),
        ("crop+flip", new().random_crop(4).fill_mode(FillMode::Constant).horizontal_flip(true)),
        (
            "crop+flip+cutout",
            new().random_crop(4).fill_mode(FillMode::Reflect).horizontal_flip(true).cutout(8),
        ),
        ("rotation+zoom+shift+flip", affine()),
        ("rotation+zoom+shift+flip, order 0", affine().interpolation_order(0)),
        ("rotation+zoom+shift+flip+brightness", affine().brightness_range([0.8, 1.2])),
        ("resized crop+flip", {
            new().random_resized_crop(RandomResizedCrop::default()).horizontal_flip(true)
        }),
        ("rand_augment", new().rand_augment(RandAugment::default())),
    ]
    .into_iter()
    .map(|(operations, options)| (operations, Ok(options)))
    .chain(LISTS.map(|list| (list, list.parse().map(|list| new().compose(list)))))
    {
        let pipeline = options?.build(SHAPE)?;
        let rate = images_per_second(&pipeline, &images)?;
        let place = match pipeline.unplaceable() {
            None => format!(", \"ms_to_place_50000\": {:.1}", milliseconds_to_place(&pipeline)),
            Some(_) => String::new(),
        };
        println!("{{\"operations\": \"{operations}\", \"images_per_s\": {rate:.0}{place}}}");
    }
    Ok(())
}
