//! `towers bench first-step`: the time until a process trains.

use crate::args::StepArgs;
use crate::print;
use std::process::ExitCode;
use std::time::Instant;
use towers_bench::{BenchMode, BenchOptions, Setup};

pub fn run(args: &StepArgs, started: Instant) -> anyhow::Result<ExitCode> {
    let (config, options) = args.read(BenchMode::Train, BenchOptions::default().seconds)?;
    let at = towers_bench::first_step(&config, &options, started)?;
    if args.json {
        return print::json(&at);
    }
    let Setup { model, batch, device, threads, .. } = &at.setup;
    let threads = print::threads(*threads);
    let head =
        format!("{model}, batch {batch}, on the {device} ({threads}): seconds since the process began");
    let line = |what: &str, seconds: f64| format!("  {seconds:6.3}  {what}");
    print::lines(vec![
        head,
        line("the program runs", at.started_s),
        line("the device is open", at.opened_s),
        line("all memory is allocated", at.built_s),
        line("all parameters are initialized", at.initialized_s),
        line("the first training step begins", at.began_s),
        line("it ends", at.ended_s),
        format!("A second step took {:.3} s.", at.second_step_s),
    ])
}
