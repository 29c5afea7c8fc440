//! Finds or fetches CIFAR-10, and prints the progress and the result.
//!
//! `cargo run --release -p towers-cifar --example fetch -- [DIR [URL...]]`

use std::time::Instant;

use towers_cifar::{Cifar, Kind, Progress};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> towers_cifar::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| "data".into());
    let urls: Vec<String> = arguments.collect();
    let mut tenth = 0;
    let mut cifar = Cifar::new(Kind::Cifar10).data_dir(dir).progress(move |step| match step {
        Progress::Downloading { bytes, total: Some(total), .. } if bytes * 10 / total.max(1) == tenth => {}
        Progress::Downloading { bytes, total, .. } => {
            tenth = bytes * 10 / total.unwrap_or(bytes).max(1);
            println!("{step}");
        }
        _ => println!("{step}"),
    });
    if !urls.is_empty() {
        cifar = cifar.urls(urls);
    }
    let start = Instant::now();
    let data = cifar.load()?;
    println!("{} + {} images in {:.1?}", data.train.len(), data.test.len(), start.elapsed());
    println!("classes: {}", data.classes.join(", "));
    Ok(())
}
