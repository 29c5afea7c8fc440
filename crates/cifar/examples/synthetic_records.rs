//! Writes the default synthetic set as CIFAR-10 records (`train.bin`, `test.bin`) for other programs to read.
//!
//! `cargo run -p towers-cifar --example synthetic_records -- SEED DIR`

use std::path::Path;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seed = arguments.next().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let dir = arguments.next().unwrap_or_else(|| ".".into());
    let data = towers_cifar::synthetic(seed, towers_cifar::SYNTHETIC_TRAIN, towers_cifar::SYNTHETIC_TEST);
    for (name, split) in [("train.bin", &data.train), ("test.bin", &data.test)] {
        let mut records = Vec::with_capacity(split.len() * (1 + towers_cifar::IMAGE_BYTES));
        for (image, &label) in split.images.outer_iter().zip(&split.labels) {
            records.push(label as u8);
            records.extend(image.permuted_axes([2, 0, 1]).iter());
        }
        std::fs::write(Path::new(&dir).join(name), records)?;
    }
    Ok(())
}
