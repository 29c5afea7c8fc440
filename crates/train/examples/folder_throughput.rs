//! Images a second from a folder of class folders, on as many workers as are given; prints a JSON object a line.
//!
//! `cargo run --release -p towers-train --example folder_throughput -- DIR [SIZE] [WORKERS] [EPOCHS]`
//!
//! `docs/benchmarks/folder_throughput.py` measures torchvision's `DataLoader` with the same transforms.

use augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
use cifar::Split;
use cifar::folder::ClassFolders;
use std::error::Error;
use std::time::Instant;

/// The images of a split, wherever they are.
fn samples(split: Split) -> Result<Samples, augment::Error> {
    let (shape, labels) = (split.shape(), split.labels.to_vec());
    let Some(files) = split.files else { return Samples::new(split.images, labels) };
    Samples::on_demand(shape, labels, move |sample, pixels| {
        let unread = |error: cifar::Error| augment::Error::Read { reason: error.to_string() };
        files.read(sample, pixels).map_err(unread)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let dir = arguments.get(1).ok_or("give a folder of class folders")?;
    let number = |place: usize, default: usize| {
        arguments.get(place).map_or(Ok(default), |argument| argument.parse::<usize>())
    };
    let (size, workers, epochs) = (number(2, 224)?, number(3, 2)?, number(4, 3)?);
    for (images, in_memory) in [("decoded on demand", 0), ("in memory", u64::MAX)] {
        let start = Instant::now();
        let folders = ClassFolders::new(dir).image_size(size, size).on_demand_above(in_memory);
        let samples = samples(folders.read()?.train)?;
        let seconds_to_read = start.elapsed().as_secs_f64();
        let flip = ImageDataGenerator::new().horizontal_flip(true).rescale(1.0 / 255.0);
        let shift = flip.clone().width_shift_range(0.1).height_shift_range(0.1);
        for (transforms, options) in [("flip", flip), ("flip+shift", shift)] {
            let batches = LoaderOptions::new().batch_size(64).seed(1).workers(workers);
            let mut loader = Loader::new(samples.clone(), options.build(samples.shape())?, batches)?;
            let rate = |epoch: usize| -> Result<f64, augment::Error> {
                let start = Instant::now();
                for batch in loader.epoch(epoch as u64, 0)? {
                    batch?;
                }
                Ok(samples.len() as f64 / start.elapsed().as_secs_f64())
            };
            let rates: Vec<f64> = (0..epochs).map(rate).collect::<Result<_, _>>()?;
            let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
            println!(
                "{{\"images\": \"{images}\", \"transforms\": \"{transforms}\", \"workers\": {workers}, \
                 \"images_per_s\": [{}], \"seconds_to_read\": {seconds_to_read:.1}}}",
                rates.join(", ")
            );
        }
    }
    Ok(())
}
