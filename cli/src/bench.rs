//! `towers bench`.

use crate::args::{BenchArgs, OtherBench, StepArgs, ThroughputArgs};
use crate::device::warn_of_unused_gpu;
use crate::error::{at_least_one, usage};
use crate::{first_step, print, profile, roofline};
use std::process::ExitCode;
use std::time::Instant;
use towers_bench::{BenchMode, BenchOptions, ReplicaBench, Setup};
use towers_config::Config;
use towers_train::Process;

/// The longest that processes wait for each other, in seconds.
const TIMEOUT: u64 = 600;

pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    match args.other {
        None => throughput(&args.throughput),
        Some(OtherBench::Profile(args)) => profile::run(&args),
        Some(OtherBench::Roofline(args)) => roofline::run(&args),
        Some(OtherBench::FirstStep(args)) => first_step::run(&args, started),
    }
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
    if process.is_some()
        || towers_train::check_devices(&config.placement.devices, &config.training.arithmetic)? > 1
    {
        return bench_replicas(process, &config, &options, args.step.json);
    }
    let result = towers_bench::bench(&config, &options)?;
    if args.step.json {
        return print::json(&result);
    }
    let Setup { model, mode, batch, device, threads, precision, .. } = result.setup;
    let mode = serde_json::to_value(mode)?;
    let memory = result.peak_rss_mb.map_or(String::new(), |mb| format!(", {mb:.0} MB at most"));
    let why = |why| format!(" (steps could not be recorded: {why})");
    let not_recorded = result.not_recorded.as_ref().map_or(String::new(), why);
    if !result.engine.is_empty() {
        print::lines(result.engine)?;
    }
    print::text(&format!(
        "{model} {}, batch {batch}: {:.1} images/s on the {device} ({}, {precision}{memory}){not_recorded}\n",
        mode.as_str().unwrap_or("?"),
        result.images_per_s,
        print::threads(threads),
    ))
}

/// Several replicas that train together: threads of this process, or of several processes.
fn bench_replicas(
    process: Option<Process>,
    config: &Config,
    options: &BenchOptions,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let first = process.as_ref().is_none_or(Process::is_first);
    let result = match process {
        Some(process) => towers_bench::bench_process(process, config, options)?,
        None => towers_bench::bench_replicas(config, options)?,
    };
    match (first, json) {
        (false, _) => Ok(ExitCode::SUCCESS),
        (true, true) => print::json(&result),
        (true, false) => print::lines(lines(&result)),
    }
}

/// The throughput, and the parts of a step's time.
fn lines(result: &ReplicaBench) -> Vec<String> {
    let ReplicaBench { setup, replicas, images_per_s, .. } = result;
    let Setup { model, batch, device, threads, precision, .. } = setup;
    let threads = print::threads(*threads);
    let mut lines = vec![format!(
        "{model} train, {replicas} replicas, batch {batch} each: {images_per_s:.1} images/s on the {device} \
         ({threads} each, {precision})"
    )];
    let milliseconds = |seconds: f64| format!("{:.2}", 1e3 * seconds);
    if let (Some(slowest), Some(exchange)) = (result.slowest_s, result.exchange_s) {
        let each: Vec<_> = result.computing_s.iter().copied().map(milliseconds).collect();
        lines.push(format!(
            "step {} ms: the slowest replica computes {} ms (on average they do {} ms), adding up takes {} ms",
            milliseconds(result.step_s),
            milliseconds(slowest),
            each.join(", "),
            milliseconds(exchange),
        ));
    }
    lines.extend(result.not_recorded.as_ref().map(|why| format!("steps could not be recorded: {why}")));
    lines
}
