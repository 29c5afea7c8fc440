//! `towers program`: the ops of a training step or an inference pass, and when each of them runs.

use crate::args::ProgramArgs;
use crate::error::at_least_one;
use crate::print;
use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use towers_bench::BenchOptions;
use towers_config::Config;
use towers_runs::folder_must_exist;

pub fn run(args: ProgramArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch", args.batch.unwrap_or(1))?;
    let mut config = args.network.config()?;
    args.devices.apply(&mut config)?;
    config.placement.devices.pipeline_stages =
        args.pipeline_stages.unwrap_or(config.placement.devices.pipeline_stages);
    config.training.sync_batch_norm |= args.sync_batch_norm;
    let options = BenchOptions { mode: args.mode, batch: args.batch, ..BenchOptions::default() };
    if let Some(file) = &args.timeline {
        return timeline(&config, &options, file);
    }
    let programs = towers_bench::programs(&config, &options)?;
    let count = programs.len();
    let texts = programs.into_iter().enumerate().map(|(stage, text)| match count {
        1 => text,
        _ => format!("stage {} of {count}\n{text}", stage + 1),
    });
    print::text(&texts.collect::<Vec<_>>().join("\n"))
}

fn timeline(config: &Config, options: &BenchOptions, file: &Path) -> anyhow::Result<ExitCode> {
    folder_must_exist("timeline", file)?;
    let timeline = towers_bench::timeline(config, options)?;
    let text = serde_json::to_string(&timeline)?;
    fs::write(file, text).with_context(|| format!("--timeline: {} can't be written", file.display()))?;
    print::lines(vec![format!("{}: open it in https://ui.perfetto.dev or chrome://tracing", file.display())])
}
