use crate::options::batch_size;
use crate::{BenchMode, BenchOptions, Error, Result};
use towers_config::{Config, Devices};
use towers_layers::{Draws, Initializer, Mode, Network, Work};
use towers_models::Model;
use towers_program::{Device, OptimizerState};
use towers_train::{Meter, StepOptions, ascend, open_devices, update};

/// What a benchmark measures: a network with a batch of random data in place.
pub(crate) struct Subject {
    pub(crate) device: Device,
    pub(crate) network: Network,
    /// What each layer does.
    pub(crate) work: Vec<Work>,
    pub(crate) optimizer: OptimizerState,
    pub(crate) meter: Meter,
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
        let optimizer = config.optimizer_on(&model, &network)?;
        let (images, labels) = random_batch(batch, &network);
        network.set_input(&images, &labels)?;
        let (meter, work) = (Meter::new(&device)?, model.graph().work());
        Ok(Subject { device, network, work, optimizer, meter, batch, images, labels })
    }
}

/// The first of the devices that the configuration asks for.
pub(crate) fn device(config: &Config) -> Result<Device> {
    let one = Devices { replicas: 1, ..config.placement.devices.clone() };
    let first = open_devices(&one, &config.training.arithmetic)?.into_iter().next();
    first.ok_or_else(|| Error::Device("there is no device".into()))
}

/// The recipe's network, for ten classes, with its frozen layers.
pub(crate) fn model(config: &Config) -> Result<Model> {
    Ok(config.frozen(config.network(config.training.data.image(), config.some_classes())?)?)
}

/// Images and labels for a network.
pub(crate) fn random_batch(batch: usize, network: &Network) -> (Vec<f32>, Vec<u32>) {
    let images = Initializer::Normal(0.0, 1.0).values(0, "bench", &[batch, network.sample_len()]);
    let classes = network.logits().layout.shape.c as u32;
    (images, (0..batch as u32).map(|k| (k * 7 + 3) % classes).collect())
}

/// The work after the passes of a step.
pub(crate) type After = fn(&mut Network, &mut OptimizerState, &mut Meter, &StepOptions) -> Result<()>;

/// The work after each pass of a step, with its name. A sharpness-aware step has two passes.
pub(crate) fn after_passes(optimizer: &OptimizerState) -> &'static [(After, &'static str)] {
    match optimizer.is_sharpness_aware() {
        true => &[(ascend, "running averages and ascent"), (update, "optimizer")],
        false => &[(update, "running averages and optimizer")],
    }
}

/// The numbers of a step: the configuration's learning rate, and no label smoothing.
pub(crate) fn step_options(config: &Config, step: u64, global_batch: usize) -> StepOptions {
    let draws = Draws { seed: config.training.seed, step, first_sample: 0 };
    StepOptions { draws, label_smoothing: 0.0, lr: config.training.lr, global_batch, epoch: 0 }
}
