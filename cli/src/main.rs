//! `towers`: trains convolutional image classifiers on one or many GPUs, or on the CPU alone.
//!
//! Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted by a signal (the run can be resumed).
#![forbid(unsafe_code)]

mod args;
mod bench;
mod completions;
mod configure;
mod data;
mod device;
mod elsewhere;
mod error;
mod evaluate;
mod export;
mod fetch;
mod flags;
mod interrupt;
mod launch;
mod live;
mod lr_find;
mod model;
mod network;
mod picture;
mod predict;
mod preview;
mod print;
mod program;
mod recipes;
mod report;
mod resume;
mod runs;
mod selftest;
mod short_help;
mod spelling;
mod summary;
mod train;
mod usage;

use args::Command;
use std::panic;
use std::process::ExitCode;

/// Leaves out the message of a panic that becomes an error, such as that of a picture's decoder.
fn report_panics() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !towers_dataset::catches_panics() {
            others(panic);
        }
    }));
}

fn main() -> ExitCode {
    towers_launch::follow_launcher();
    report_panics();
    let args = usage::parse().unwrap_or_else(|error| error::refuse(&usage::advised(error)));
    let result = match args.command {
        Command::Train(args) => train::run(*args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Export(args) => export::run(args),
        Command::Report(args) => report::run(args),
        Command::Fetch(args) => fetch::run(args),
        Command::Preview(args) => preview::run(*args),
        Command::Devices => towers_train::describe_devices().map_err(Into::into).and_then(print::lines),
        Command::Recipes(args) => recipes::run(args),
        Command::Summary(args) => summary::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Program(args) => program::run(args),
        Command::Bench(args) => bench::run(args),
        Command::LrFind(args) => lr_find::run(*args),
        Command::Selftest(args) => selftest::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => completions::man(&args),
    };
    let code = towers_launch::farewell(result.unwrap_or_else(|error| error::report(&error)));
    towers_train::end_failed_job();
    code
}
