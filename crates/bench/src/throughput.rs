use crate::options::LEAST_WARMUP;
use crate::subject::{Subject, step_options};
use crate::{BenchMode, BenchOptions, Error, Result, Setup};
use serde::Serialize;
use std::time::Instant;
use towers_config::Config;
use towers_program::{GraphCache, ReplayArgs};
use towers_tensor_cuda::Cuda;
use towers_train::median;
use towers_train::train_step;

/// The throughput of a network on random data in memory: the output of `towers bench --json`.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult {
    /// What was measured, and on what.
    #[serde(flatten)]
    pub setup: Setup,
    /// The median over the repeats.
    pub images_per_s: f64,
    /// The process's largest memory so far, in MB; `None` where the system doesn't tell.
    pub peak_rss_mb: Option<f64>,
    /// Every repeat's throughput.
    pub repeats: Vec<f64>,
    /// Seconds that the first step took.
    pub first_step_s: f64,
    /// The mean loss of the last step's batch: that something was learned, or at least computed.
    pub last: f64,
    /// Why a device that can play back recorded steps was told each op of each step; `None` where all went as it should.
    pub not_recorded: Option<String>,
    /// Of a recorded step: its pieces of work, and those of the longest chain of them. Zeros where steps are not recorded.
    pub recorded: [usize; 2],
    /// What computes on a GPU, and which algorithms were chosen: lines for people.
    #[serde(skip)]
    pub engine: Vec<String>,
}

/// Measures the throughput of a recipe's network, one replica, on random data that is already on the device.
///
/// # Errors
/// What the device says.
pub fn bench(config: &Config, options: &BenchOptions) -> Result<BenchResult> {
    let subject = Subject::new(config, options)?;
    let Subject { device, mut network, mut optimizer, mut meter, batch, .. } = subject;
    let (mut recorder, mut number) = (GraphCache::default(), 0);
    let mut step = || -> Result<()> {
        let turn = ReplayArgs { step: number, lr: config.training.lr as f32, first: 0 };
        number += 1;
        recorder.run(&device, (), &turn, || {
            if options.mode == BenchMode::Infer {
                return Ok(network.evaluate_pass()?);
            }
            train_step(&mut network, &mut optimizer, &mut meter, &step_options(config, turn.step, batch))
        })
    };
    // The wait for a device that runs ahead comes after so many steps: seldom enough to cost nothing.
    let stride = if device.runs_ahead() { 32 } else { 1 };
    let mut run = |steps: usize| -> Result<()> {
        (0..steps).try_for_each(|_| step())?;
        Ok(device.synchronize()?)
    };
    let began = Instant::now();
    run(1)?;
    let first_step_s = began.elapsed().as_secs_f64();
    run(options.warmup.max(LEAST_WARMUP) - 1)?;
    let mut repeats = Vec::new();
    for _ in 0..options.repeats.max(1) {
        let (began, mut steps) = (Instant::now(), 0);
        while steps < 3 || began.elapsed().as_secs_f64() < options.seconds {
            run(stride)?;
            steps += stride;
        }
        repeats.push((steps * batch) as f64 / began.elapsed().as_secs_f64());
    }
    let last = network.metrics()?.loss_sum / batch as f64;
    if !last.is_finite() {
        // A device that runs ahead skips the updates from here on, so the measured steps were not whole.
        return Err(Error::NotFinite { loss: last, epoch: 1, step: number });
    }
    let engine = device.get().map(Cuda::describe_engine).unwrap_or_default();
    Ok(BenchResult {
        setup: Setup::of(config, options, batch, &device),
        images_per_s: median(&repeats),
        peak_rss_mb: peak_rss_mb(),
        repeats,
        first_step_s,
        last,
        not_recorded: recorder.refusal().map(str::to_owned),
        recorded: recorder.size(),
        engine,
    })
}

/// The largest resident memory of this process so far, from Linux' `/proc`.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
