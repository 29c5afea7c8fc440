use crate::options::batch_size;
use crate::subject::{device, model, random_batch, step_options};
use crate::{BenchOptions, Error, Result, Setup};
use serde::Serialize;
use std::time::{Duration, Instant};
use towers_config::Config;
use towers_layers::Mode;
use towers_train::{Meter, train_step};

/// When a process came to its first training step, in seconds since it began: the output of `towers bench
/// first-step --json`.
#[derive(Clone, Debug, Serialize)]
pub struct FirstStep {
    /// What was measured, and on what.
    #[serde(flatten)]
    pub setup: Setup,
    /// The program ran, and had read its command line.
    pub started_s: f64,
    /// The device was open.
    pub opened_s: f64,
    /// All memory had its place.
    pub built_s: f64,
    /// Every parameter had its first values.
    pub initialized_s: f64,
    /// The first batch was on the device: the first step began.
    pub began_s: f64,
    /// The first step was done, with its loss.
    pub ended_s: f64,
    /// How long the second step took, which is as long as any other.
    pub second_step_s: f64,
}

/// Builds a recipe's network and takes two steps on random data, looking at the clock.
///
/// `started` is when the caller began, and is taken for the process's first moment where the system doesn't tell that one.
///
/// # Errors
/// What the device says.
pub fn first_step(config: &Config, options: &BenchOptions, started: Instant) -> Result<FirstStep> {
    config.check()?;
    let before = age().map_or(Duration::ZERO, |age| age.saturating_sub(started.elapsed()));
    let now = || (before + started.elapsed()).as_secs_f64();
    let started_s = now();
    let (device, batch) = (device(config)?, batch_size(config, options));
    let opened_s = now();
    let model = model(config)?;
    let mut network = model.build(&device, batch, Mode::Training)?;
    let mut optimizer = config.optimizer_on(&model, &network)?;
    let mut meter = Meter::new(&device)?;
    let built_s = now();
    network.init(config.training.seed)?;
    let initialized_s = now();
    let (images, labels) = random_batch(batch, &network);
    network.set_input(&images, &labels)?;
    let began_s = now();
    let mut step = |step: u64| -> Result<f64> {
        train_step(&mut network, &mut optimizer, &mut meter, &step_options(config, step, batch))?;
        let loss = network.metrics()?.loss_sum / batch as f64;
        if loss.is_finite() { Ok(now()) } else { Err(Error::NotFinite { loss, epoch: 1, step: step + 1 }) }
    };
    let ended_s = step(0)?;
    let second_step_s = step(1)? - ended_s;
    let setup = Setup::of(config, options, batch, &device);
    Ok(FirstStep { setup, started_s, opened_s, built_s, initialized_s, began_s, ended_s, second_step_s })
}

/// How long this process has lived, by Linux' `/proc`: to a hundredth of a second. The system starts it, and loads the program,
/// before the program can look at any clock.
fn age() -> Option<Duration> {
    /// Of the times in `/proc`, on all processors that Linux runs on today.
    const TICKS_PER_SECOND: f64 = 100.0;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let now: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses, which may hold anything; the start time is the
    // 22nd.
    let (_, fields) = stat.rsplit_once(')')?;
    let began: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    Duration::try_from_secs_f64(now - began / TICKS_PER_SECOND).ok()
}
