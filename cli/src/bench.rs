//! `towers bench`.

use crate::args::BenchArgs;
use crate::device::warn_of_unused_gpu;
use crate::error::{at_least_one, usage};
use crate::{first_step, print, profile, roofline};
use bench::{BenchOptions, ReplicaBench, Setup};
use config::Config;
use std::process::ExitCode;
use std::time::Instant;
use train::Process;

/// The longest that processes wait for each other, in seconds.
const TIMEOUT: u64 = 600;

pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    at_least_one("--batch", args.batch.unwrap_or(1))?;
    at_least_one("--repeats", args.repeats)?;
    if !(args.seconds.is_finite() && args.seconds >= 0.0) {
        return Err(usage(format!(
            "--seconds is {}, but must be a finite number of at least 0",
            args.seconds
        )));
    }
    let mut config = args.network.config()?;
    args.devices.apply(&mut config)?;
    if args.roofline {
        return roofline::run(&config, args.json);
    }
    let options = BenchOptions {
        mode: args.mode,
        batch: args.batch,
        seconds: args.seconds,
        repeats: args.repeats,
        ..BenchOptions::default()
    };
    warn_of_unused_gpu(&config.placement.devices);
    if args.first_step {
        return first_step::run(&config, &options, started, args.json);
    }
    if args.profile {
        return profile::run(&config, &options, args.json);
    }
    config.placement.devices.collective_timeout = TIMEOUT;
    let process = Process::join(&config.placement.devices)?;
    if process.is_some() || train::check_devices(&config.placement.devices, &config.training.arithmetic)? > 1
    {
        return bench_replicas(process, &config, &options, args.json);
    }
    let result = bench::bench(&config, &options)?;
    if args.json {
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
        Some(process) => bench::bench_process(process, config, options)?,
        None => bench::bench_replicas(config, options)?,
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
