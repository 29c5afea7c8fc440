//! Images a second from a folder of class folders, on as many workers as are given, and on Linux the CPU time of an image; prints a JSON
//! object a line.
//!
//! `cargo run --release -p towers-train --example folder_throughput -- DIR [SIZE] [WORKERS] [EPOCHS]`
//!
//! `docs/benchmarks/folder_throughput.py` measures torchvision's `DataLoader` with the same transforms.

use std::error::Error;
use std::time::Instant;
use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
use towers_dataset::Split;
use towers_pictures::Pictures;

/// The images of a split, wherever they are.
fn samples(split: Split) -> Result<Samples, towers_augment::Error> {
    let (shape, labels) = (split.shape(), split.labels.to_vec());
    let Some(files) = split.files else { return Samples::new(split.images, labels) };
    Samples::on_demand(shape, labels, move |sample, pixels| {
        let unread = |error: towers_dataset::Error| towers_augment::Error::Read { reason: error.to_string() };
        files.read(sample, pixels).map_err(unread)
    })
}

/// The CPU time of all threads so far, in the hundredths of a second that Linux counts.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    Some(ticks.map_while(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

/// A list in JSON.
fn list(numbers: impl Iterator<Item = f64>, digits: usize) -> String {
    let numbers: Vec<String> = numbers.map(|number| format!("{number:.digits$}")).collect();
    format!("[{}]", numbers.join(", "))
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
        let folders = Pictures::class_folders(dir).image_size(size, size).on_demand_above(in_memory);
        let samples = samples(folders.read()?.train)?;
        let seconds_to_read = start.elapsed().as_secs_f64();
        let flip = ImageDataGenerator::new().horizontal_flip(true).rescale(1.0 / 255.0);
        let shift = flip.clone().width_shift_range(0.1).height_shift_range(0.1);
        for (transforms, options) in [("flip", flip), ("flip+shift", shift)] {
            let batches = LoaderOptions::new().batch_size(64).seed(1).workers(workers);
            let mut loader = Loader::new(samples.clone(), options.build(samples.shape())?, batches)?;
            let len = samples.len() as f64;
            let epoch = |epoch: usize| -> Result<(f64, Option<f64>), towers_augment::Error> {
                let (start, cpu) = (Instant::now(), cpu_seconds());
                for batch in loader.epoch(epoch as u64, 0)? {
                    batch?;
                }
                let cpu = cpu.zip(cpu_seconds()).map(|(before, after)| (after - before) * 1000.0 / len);
                Ok((len / start.elapsed().as_secs_f64(), cpu))
            };
            let epochs: Vec<_> = (0..epochs).map(epoch).collect::<Result<_, _>>()?;
            println!(
                "{{\"images\": \"{images}\", \"transforms\": \"{transforms}\", \"workers\": {workers}, \
                 \"images_per_s\": {}, \"cpu_ms_an_image\": {}, \"seconds_to_read\": {seconds_to_read:.1}}}",
                list(epochs.iter().map(|&(rate, _)| rate), 0),
                list(epochs.iter().filter_map(|&(_, cpu)| cpu), 2),
            );
        }
    }
    Ok(())
}
