//! `towers program`: the ops of a training step or an inference pass.

use crate::args::{Mode, ProgramArgs};
use crate::error::at_least_one;
use crate::print;
use std::process::ExitCode;
use train::{BenchMode, BenchOptions};

pub fn run(args: ProgramArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch", args.batch.unwrap_or(1))?;
    at_least_one("--replicas", args.replicas.unwrap_or(1))?;
    let mut config = train::find_recipe(&args.recipe)?;
    config.devices.replicas = args.replicas.unwrap_or(config.devices.replicas);
    config.devices.pipeline_stages = args.pipeline_stages.unwrap_or(config.devices.pipeline_stages);
    config.sync_batch_norm |= args.sync_batch_norm;
    let mode = match args.mode {
        Mode::Train => BenchMode::Train,
        Mode::Infer => BenchMode::Infer,
    };
    let programs =
        train::programs(&config, &BenchOptions { mode, batch: args.batch, ..BenchOptions::default() })?;
    let count = programs.len();
    let texts = programs.into_iter().map(|program| match count {
        1 => program.text,
        _ => format!("stage {} of {count}\n{}", program.stage, program.text),
    });
    print::text(&texts.collect::<Vec<_>>().join("\n"))
}
