//! `towers bench`.

use crate::args::{BenchArgs, OtherBench, ProfileArgs, RooflineArgs, StepArgs, ThroughputArgs};
use crate::device::warn_of_unused_gpu;
use crate::error::{at_least_one, usage};
use crate::print;
use serde::Serialize;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Instant;
use towers_bench::{BenchMode, BenchOptions, Setup};
use towers_config::Config;
use towers_train::Process;

/// The longest that processes wait for each other, in seconds.
const TIMEOUT: u64 = 600;

/// Why a convolution may pass the peak. The transforms are those of the CPU's f32 kernels.
const WINOGRAD: &str = "GFLOP/s and `of peak` count the multiplications of direct sums. Winograd's transforms do up to 4 times fewer of \
                        them, so 3x3 convolutions may pass 100%; --no-winograd takes the direct sums.\n";

pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    match args.other {
        None => throughput(&args.throughput),
        Some(OtherBench::Profile(ProfileArgs { mode, seconds, step })) => {
            let (config, options) = step.read(mode, seconds)?;
            let profile = towers_bench::profile(&config, &options)?;
            let Setup { device, precision, .. } = &profile.setup;
            let transforms =
                !config.training.arithmetic.no_winograd && device == "cpu" && *precision == "fp32";
            let shown = show(step.json, &profile)?;
            if transforms && !step.json { print::text(WINOGRAD) } else { Ok(shown) }
        }
        Some(OtherBench::Roofline(RooflineArgs { json, devices })) => {
            let Config { training, placement, .. } = devices.config()?;
            show(json, &towers_bench::roofline(&placement.devices, &training.arithmetic)?)
        }
        Some(OtherBench::FirstStep(step)) => {
            let (config, options) = step.read(BenchMode::Train, BenchOptions::default().seconds)?;
            show(step.json, &towers_bench::first_step(&config, &options, started)?)
        }
    }
}

/// Prints a result as JSON or as text.
fn show(json: bool, result: &(impl Serialize + Display)) -> anyhow::Result<ExitCode> {
    if json { print::json(result) } else { print::text(&format!("{result}\n")) }
}

impl StepArgs {
    /// The configuration and the options of a measurement of at least so many seconds.
    pub fn read(&self, mode: BenchMode, seconds: f64) -> anyhow::Result<(Config, BenchOptions)> {
        at_least_one("--batch", self.batch.unwrap_or(1))?;
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(usage(format!("--seconds is {seconds}, but must be a finite number of at least 0")));
        }
        let mut config = self.network.config()?;
        self.devices.apply(&mut config)?;
        warn_of_unused_gpu(&config.placement.devices);
        Ok((config, BenchOptions { mode, batch: self.batch, seconds, ..BenchOptions::default() }))
    }
}

fn throughput(args: &ThroughputArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--repeats", args.repeats)?;
    let (mut config, mut options) = args.step.read(args.mode, args.seconds)?;
    (options.repeats, config.placement.devices.collective_timeout) = (args.repeats, TIMEOUT);
    let process = Process::join(&config.placement.devices)?;
    let first = process.as_ref().is_none_or(Process::is_first);
    let replicas = match process {
        Some(process) => towers_bench::bench_process(process, &config, &options)?,
        None if towers_train::check_devices(&config.placement.devices, &config.training.arithmetic)? > 1 => {
            towers_bench::bench_replicas(&config, &options)?
        }
        None => return show(args.step.json, &towers_bench::bench(&config, &options)?),
    };
    if first { show(args.step.json, &replicas) } else { Ok(ExitCode::SUCCESS) }
}
