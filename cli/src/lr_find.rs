//! `towers lr-find`.

use crate::args::{KeepArgs, LrFindArgs, TrainArgs};
use crate::device::warn_of_unused_gpu;
use crate::error::usage;
use crate::picture::format_of;
use crate::print::{self, note, warn};
use crate::spelling::flag_of;
use crate::train;
use std::process::ExitCode;
use towers_bench::{LrCurve, LrRange, left_out};

pub fn run(args: LrFindArgs) -> anyhow::Result<ExitCode> {
    let LrFindArgs { min_lr, max_lr, steps, output, json, .. } = args;
    let format = format_of("output", &output)?;
    let train = TrainArgs {
        recipe: args.recipe,
        quick: args.quick,
        options: args.options,
        momentum: args.momentum,
        power: None,
        decay: None,
        warmup_epochs: None,
        no_augmentation: args.no_augmentation,
        forget_outputs: false,
        keep: KeepArgs::default(),
    };
    if train.options.has_auto_batch() {
        return Err(usage("--batch-size is auto, but must be a number: the rate depends on it"));
    }
    let mut config = train.config()?;
    let data = train::load(&mut config, &train, None, true)?;
    warn_of_unused_gpu(&config.placement.devices);
    let without: Vec<String> = left_out(&config).iter().map(|key| flag_of(key)).collect();
    if !without.is_empty() {
        note(format_args!(
            "the test has its own rates and saves no run, so it leaves out {}",
            without.join(", ")
        ));
    }
    let title = format!("{} on {}", config.training.model, data.name);
    let curve = LrRange { min_lr, max_lr, steps }.find(&config, data)?;
    curve.warnings.iter().for_each(warn);
    towers_files::write_output(&output, &curve.chart(&title).picture(format)?)?;
    if json {
        let mut all = serde_json::to_value(&curve)?;
        all["suggestion"] = curve.suggestion().into();
        all["valley"] = curve.valley().into();
        all["steepest"] = curve.steepest().into();
        return print::json(&all);
    }
    let mut lines = table(&curve);
    lines.push(format!("wrote {}", output.display()));
    lines.extend(answer(&curve));
    print::lines(lines)
}

/// The most rows of the table.
const ROWS: usize = 20;

/// Some of the steps.
fn table(curve: &LrCurve) -> Vec<String> {
    let every = curve.lr.len().div_ceil(ROWS).max(1);
    let mut lines = vec![format!("{:>9} {:>10} {:>10}", "rate", "loss", "smoothed")];
    for k in (0..curve.lr.len()).step_by(every) {
        lines.push(format!("{:>9.2e} {:>10.4} {:>10.4}", curve.lr[k], curve.loss[k], curve.smoothed[k]));
    }
    lines
}

/// How the test ended, and the flag for the suggestion.
fn answer(curve: &LrCurve) -> Vec<String> {
    let mut lines = Vec::new();
    if curve.diverged {
        let last = curve.lr.last().copied().unwrap_or_default();
        lines
            .push(format!("the loss grew, and the test ended after {} steps, at {last:.2e}", curve.lr.len()));
    }
    let place = |what, lr: Option<f64>| lr.map(|lr| format!("{what}: {lr:.2e}"));
    lines.extend(place("at the steepest descent", curve.steepest()));
    lines.extend(place("half-way down the longest valley", curve.valley()));
    lines.push(match curve.suggestion() {
        Some(lr) => format!("--lr {lr:.2e}"),
        None => "no suggestion: the loss falls nowhere; give more --steps, or other --min-lr and --max-lr"
            .to_owned(),
    });
    lines
}
