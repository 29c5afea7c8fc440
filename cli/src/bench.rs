//! `towers bench`.

use crate::args::{BenchArgs, Mode};
use crate::error::{at_least_one, usage};
use crate::{first_step, print, profile, roofline};
use std::process::ExitCode;
use std::time::Instant;
use train::{BenchMode, BenchOptions};

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
    let mut config = train::find_recipe(&args.recipe)?;
    args.devices.apply(&mut config.devices)?;
    if args.roofline {
        return roofline::run(&config.devices, args.json);
    }
    let mode = match args.mode {
        Mode::Train => BenchMode::Train,
        Mode::Infer => BenchMode::Infer,
    };
    let options = BenchOptions {
        mode,
        batch: args.batch,
        seconds: args.seconds,
        repeats: args.repeats,
        ..BenchOptions::default()
    };
    if args.first_step {
        return first_step::run(&config, &options, started, args.json);
    }
    if args.profile {
        return profile::run(&config, &options, args.json);
    }
    let result = train::bench(&config, &options)?;
    if args.json {
        return print::text(&format!("{}\n", serde_json::to_string(&result)?));
    }
    let mode = serde_json::to_value(result.mode)?;
    let memory = result.peak_rss_mb.map_or(String::new(), |mb| format!(", {mb:.0} MB at most"));
    let why = |why| format!(" (steps could not be recorded: {why})");
    let not_recorded = result.not_recorded.as_ref().map_or(String::new(), why);
    if !result.engine.is_empty() {
        print::lines(result.engine)?;
    }
    print::text(&format!(
        "{} {}, batch {}: {:.1} images/s on the {} ({} threads, {}{memory}){not_recorded}\n",
        result.model,
        mode.as_str().unwrap_or("?"),
        result.batch,
        result.images_per_s,
        result.device,
        result.threads,
        result.precision,
    ))
}
