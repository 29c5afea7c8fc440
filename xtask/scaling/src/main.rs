//! `cargo xtask scaling`: predicts the step time of data-parallel training on many GPUs.
//!
//! It reads the layer times of one device, as `towers bench profile --json` measures them. The links
//! between the GPUs are assumptions. `docs/scaling.md` describes the model, its back-tests and its limits.

#![forbid(unsafe_code)]

#[cfg(test)]
mod back_tests;
mod cluster;
mod profile;
mod step;

use anyhow::{Context as _, Result};
use clap::Parser;
use cluster::{Cluster, JITTER, Link, slowest};
use profile::Profile;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

/// Predict the step time of data-parallel training on many GPUs, from measured layer times and assumed links
#[derive(Debug, Parser)]
#[command(name = "cargo xtask scaling", bin_name = "cargo xtask scaling")]
struct Options {
    /// The output of `towers bench profile --json`
    #[arg(long, value_name = "FILE.json")]
    profile: PathBuf,
    /// Numbers of GPUs
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512",
          value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Vec<u32>,
    /// Between the GPUs of one machine: pcie3, nvlink1, or BANDWIDTH,HOP in GB/s and microseconds
    #[arg(long, value_name = "LINK", value_parser = Link::parse, default_value = "pcie3")]
    link: Link,
    /// Between machines, one card each: 25g, 50g, or BANDWIDTH,HOP
    #[arg(long, value_name = "LINK", value_parser = Link::parse, default_value = "25g")]
    network: Link,
    /// GPUs of one machine
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..))]
    node: u32,
    /// MiB of gradients that are added up at a time; `inf`: all at once, after the backward pass
    #[arg(long, value_name = "MIB", default_value = "1",
          value_parser = |text: &str| number(text, 1e-6..=f64::INFINITY))]
    bucket: f64,
    /// How much step times scatter: the standard deviation of their logarithm
    #[arg(long, value_name = "SIGMA", default_value_t = JITTER,
          value_parser = |text: &str| number(text, 0.0..=1.0))]
    jitter: f64,
    /// Print one JSON object for each number of GPUs
    #[arg(long)]
    json: bool,
}

fn number(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a number from {} to {}", range.start(), range.end()))
}

/// The prediction for one number of GPUs.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    gpus: usize,
    step_ms: f64,
    images_per_s: f64,
    /// Images a second of each GPU, over those of one GPU alone.
    efficiency: f64,
    /// How long the link is busy in a step.
    communication_ms: f64,
    /// How long the GPUs wait for the link in a step.
    exposed_ms: f64,
}

/// One row for each number of GPUs. Each GPU keeps the batch of the profile (weak scaling).
fn predict(profile: &Profile, options: &Options) -> Vec<Row> {
    let cluster = Cluster {
        inside: options.link.clone(),
        network: options.network.clone(),
        node: options.node as usize,
    };
    let work = profile.work();
    let row = |&gpus: &u32| {
        let gpus = gpus as usize;
        let work_of_slowest = work.slower(slowest(gpus, options.jitter));
        let bucket = (options.bucket * f64::from(1 << 20)) as usize;
        let step = step::simulate(&work_of_slowest, bucket, |bytes| cluster.all_reduce(gpus, bytes));
        Row {
            kind: "predicted",
            gpus,
            step_ms: 1e3 * step.seconds,
            images_per_s: (gpus * profile.batch) as f64 / step.seconds,
            efficiency: work.compute() / step.seconds,
            communication_ms: 1e3 * step.communication,
            exposed_ms: 1e3 * step.exposed,
        }
    };
    options.gpus.iter().map(row).collect()
}

/// The assumptions and the table of predictions.
fn page(profile: &Profile, options: &Options, rows: &[Row]) -> String {
    let work = profile.work();
    let Profile { model, device, batch, .. } = profile;
    let mut page = format!(
        "PREDICTED, not measured: {model}, {batch} images a GPU.\n\
         Layer times: measured on {device}, {:.3} ms a step. Gradients: {:.2} MB. Jitter: {}.\n",
        1e3 * work.compute(),
        work.bytes() as f64 / 1e6,
        options.jitter,
    );
    for (place, link) in [("in a machine", &options.link), ("between machines", &options.network)] {
        let (bandwidth, hop) = (link.bandwidth / 1e9, 1e6 * link.hop);
        page += &format!(
            "Assumed {place}: {}: {bandwidth} GB/s, {hop:.1} us a hop: {}\n",
            link.name, link.source
        );
    }
    page += "  GPUs   step ms    images/s  efficiency  communication ms  exposed ms\n";
    for row in rows {
        let Row { gpus, step_ms, images_per_s, efficiency, communication_ms, exposed_ms, .. } = row;
        page += &format!("{gpus:6} {step_ms:9.3} {images_per_s:11.0} {efficiency:11.3} ");
        page += &format!("{communication_ms:17.3} {exposed_ms:11.3}\n");
    }
    page
}

fn run(options: &Options) -> Result<()> {
    let path = options.profile.display();
    let text = std::fs::read_to_string(&options.profile).with_context(|| format!("can't read {path}"))?;
    let profile = Profile::parse(&text).with_context(|| format!("{path} is refused"))?;
    let rows = predict(&profile, options);
    if options.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        print!("{}", page(&profile, options, &rows));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn options(flags: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["scaling", "--profile", "x"], flags].concat())
    }

    #[test]
    fn bad_flags_are_refused() {
        Options::command().debug_assert();
        for flags in
            [["--gpus", "0"], ["--bucket", "0"], ["--jitter", "nan"], ["--link", "tin"], ["--node", "0"]]
        {
            assert!(options(&flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn efficiency_falls_with_the_gpus_and_one_gpu_exchanges_nothing() {
        let text = include_str!("../../../docs/benchmarks/2026-11-21-profile-minigooglenet-64.json");
        let profile = Profile::parse(text).unwrap();
        let options = options(&["--bucket", "inf"]).unwrap();
        let rows = predict(&profile, &options);
        assert!((rows[0].efficiency - 1.0).abs() < 1e-9 && rows[0].communication_ms == 0.0);
        assert!(rows.windows(2).all(|pair| pair[1].efficiency < pair[0].efficiency), "{rows:?}");
        let page = page(&profile, &options, &rows);
        assert!(page.starts_with("PREDICTED") && page.contains("tests#29"), "{page}");
    }
}
