use crate::{Config, Devices, Error, Result, open_devices};
use layers::{Draws, Initializer, Mode, Network, Work};
use models::Model;
use optim::OptimizerState;
use program::{Device, Recorder, Storage, Turn};
use serde::Serialize;
use std::time::Instant;
use tensor_cuda::Cuda;

/// What a benchmark runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchMode {
    /// Forward, backward, optimizer.
    Train,
    /// Forward.
    Infer,
}

/// How a benchmark runs.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// What it runs.
    pub mode: BenchMode,
    /// Samples of a batch; `None` for 128 of the network `keras_cnn` and 64 of others in training, 256 in inference.
    pub batch: Option<usize>,
    /// Each repeat takes at least so many seconds.
    pub seconds: f64,
    /// The median over so many repeats counts.
    pub repeats: usize,
    /// Steps before the first repeat. There are at least three.
    pub warmup: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions { mode: BenchMode::Train, batch: None, seconds: 10.0, repeats: 3, warmup: 3 }
    }
}

/// A step that runs op by op, one that is recorded, and one that is played.
pub(crate) const LEAST_WARMUP: usize = 3;

/// The throughput of a network on random data in memory: what `towers bench --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct BenchResult {
    /// `towers`.
    pub peer: &'static str,
    /// The version.
    pub version: &'static str,
    /// The network.
    pub model: String,
    /// Training or inference.
    pub mode: BenchMode,
    /// Height, width and channels of the images.
    pub image: [usize; 3],
    /// Samples of a batch.
    pub batch: usize,
    /// The median over the repeats.
    pub images_per_s: f64,
    /// The process's largest memory so far, in MB; `None` where the system doesn't tell.
    pub peak_rss_mb: Option<f64>,
    /// The kind of device.
    pub device: String,
    /// Host threads.
    pub threads: usize,
    /// Of the arithmetic.
    pub precision: &'static str,
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
    let Subject { device, mut network, mut optimizer, batch, .. } = Subject::new(config, options)?;
    let mut meter = device.alloc(4)?;
    let (mut recorder, mut number) = (Recorder::default(), 0);
    let mut step = || -> Result<()> {
        let turn = Turn { step: number, lr: config.training.lr as f32, first: 0 };
        number += 1;
        recorder.play(&device, (), &turn, || {
            if options.mode == BenchMode::Infer {
                return Ok(network.evaluate_pass()?);
            }
            let draws = Draws { seed: config.training.seed, step: turn.step, first_sample: 0 };
            network.train_pass(draws, 0.0, batch)?;
            update(&mut network, &mut optimizer, &mut meter, config.training.lr, batch)
        })
    };
    // A device that runs ahead is waited for after so many steps: seldom enough to cost nothing.
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
        // A device that runs ahead leaves updates out from here on: what was measured were not whole steps.
        return Err(Error::NotFinite { loss: last, epoch: 1, step: number });
    }
    let engine = device.get().map(Cuda::describe_engine).unwrap_or_default();
    Ok(BenchResult {
        peer: "towers",
        version: env!("CARGO_PKG_VERSION"),
        model: config.training.model.clone(),
        mode: options.mode,
        image: config.training.data.image_size.shape(),
        batch,
        images_per_s: median(&repeats),
        peak_rss_mb: peak_rss_mb(),
        device: device.kind().to_owned(),
        threads: device.threads(),
        precision: device.precision().name(),
        repeats,
        first_step_s,
        last,
        not_recorded: recorder.refusal().map(str::to_owned),
        recorded: recorder.size(),
        engine,
    })
}

/// What a benchmark measures: a network with a batch of random data in place.
pub(crate) struct Subject {
    pub(crate) device: Device,
    pub(crate) network: Network,
    /// What each layer does.
    pub(crate) work: Vec<Work>,
    pub(crate) optimizer: OptimizerState,
    pub(crate) batch: usize,
    pub(crate) images: Vec<f32>,
    pub(crate) labels: Vec<u32>,
}

impl Subject {
    /// One replica of the recipe's network.
    pub(crate) fn new(config: &Config, options: &BenchOptions) -> Result<Self> {
        config.check()?;
        Subject::on(device(config)?, config, options)
    }

    /// The same on a device that is open already, for a configuration that has been checked.
    pub(crate) fn on(device: Device, config: &Config, options: &BenchOptions) -> Result<Self> {
        let (model, batch) = (model(config)?, batch_size(config, options));
        let mode = if options.mode == BenchMode::Train { Mode::Training } else { Mode::Inference };
        let mut network = model.build(&device, batch, mode)?;
        network.init(config.training.seed)?;
        let optimizer = config.optimizer_on(&network)?;
        let (images, labels) = random_batch(batch, network.sample_len());
        network.set_input(&images, &labels)?;
        Ok(Subject { device, network, work: model.graph().work(), optimizer, batch, images, labels })
    }
}

/// The first of the devices that the configuration asks for.
pub(crate) fn device(config: &Config) -> Result<Device> {
    let devices = open_devices(&Devices { replicas: 1, ..config.placement.devices.clone() })?;
    devices.into_iter().next().ok_or_else(|| Error::Device("there is no device".into()))
}

/// The recipe's network, for ten classes.
pub(crate) fn model(config: &Config) -> Result<Model> {
    let model = config.model(10);
    Ok(model.ok_or_else(|| Error::Device("there is no such network".into()))??)
}

/// Samples of a batch.
pub(crate) fn batch_size(config: &Config, options: &BenchOptions) -> usize {
    let paper = if config.training.model == "keras_cnn" { 128 } else { 64 };
    options.batch.unwrap_or(if options.mode == BenchMode::Train { paper } else { 256 })
}

/// Images of so many numbers each, and labels.
pub(crate) fn random_batch(batch: usize, sample_len: usize) -> (Vec<f32>, Vec<u32>) {
    let images = Initializer::Normal(0.0, 1.0).values(0, "bench", &[batch, sample_len]);
    (images, (0..batch as u32).map(|k| (k * 7 + 3) % 10).collect())
}

/// What a training step does once the gradients are there.
pub(crate) fn update(
    network: &mut Network,
    optimizer: &mut OptimizerState,
    meter: &mut Storage,
    lr: f64,
    batch: usize,
) -> Result<()> {
    let device = network.device().clone();
    let arena = network.arena();
    device.meter(&arena.grads, arena.metrics, meter)?;
    network.finish_step(batch)?;
    let arena = network.arena_mut();
    Ok(optimizer.step(&device, lr, &mut arena.params, &arena.grads, arena.trainable)?)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// The largest resident memory of this process so far, from Linux' `/proc`.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
