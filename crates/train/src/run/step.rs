//! A training step: the gradients of a batch, and the update. Runs and benchmarks use the same functions.

use crate::Result;
use crate::run::meter::Meter;
use core::time::Duration;
use towers_layers::{Draws, Exchange, Network};
use towers_parallel::Exchanges;
use towers_program::OptimizerState;

/// The numbers of a training step.
#[derive(Clone, Copy, Debug)]
pub struct StepOptions {
    /// The source of random draws, and the position of the first sample in the whole batch.
    pub draws: Draws,
    /// Between 0 and 1; 0 for one-hot targets.
    pub label_smoothing: f32,
    /// The learning rate.
    pub lr: f64,
    /// Samples of the whole batch, over all replicas.
    pub global_batch: usize,
    /// The epoch, from 1, for error messages.
    pub epoch: u64,
}

/// A whole training step on the loaded batch, for a single replica: the passes of [`gradients`], then
/// [`update`].
///
/// ```
/// use towers_layers::{Draws, Mode};
/// use towers_optim::Optimizer;
/// use towers_program::OptimizerState;
/// use towers_train::{Meter, StepOptions, train_step};
///
/// let device = towers_tensor_cpu::device(1);
/// let mut network = towers_models::small_cnn(10)?.build(&device, 8, Mode::Training)?;
/// network.init(1)?;
/// let optimizer: Optimizer = "sgd:momentum=0.9".parse()?;
/// let mut optimizer = OptimizerState::new(&device, optimizer, network.arena().trainable.len)?;
/// let mut meter = Meter::new(&device)?;
/// network.set_input(&vec![0.5; 8 * network.sample_len()], &[0, 1, 2, 3, 4, 5, 6, 7])?;
/// for step in 0..3 {
///     let draws = Draws { seed: 1, step, first_sample: 0 };
///     let options = StepOptions { draws, label_smoothing: 0.0, lr: 0.01, global_batch: 8, epoch: 1 };
///     train_step(&mut network, &mut optimizer, &mut meter, &options)?;
/// }
/// let totals = meter.read(&device)?;
/// assert!(totals.steps == 3.0 && totals.loss_sum > 0.0);
/// # Ok::<(), towers_train::Error>(())
/// ```
///
/// # Errors
/// Those of the device, and [`Error::NotFinite`](crate::Error::NotFinite) as in [`update`].
pub fn train_step(
    network: &mut Network,
    optimizer: &mut OptimizerState,
    meter: &mut Meter,
    options: &StepOptions,
) -> Result<()> {
    gradients(network, options, None)?;
    update(network, optimizer, meter, options)
}

/// The forward and the backward pass over the loaded batch. The gradients are divided by the samples of the
/// whole batch, so those of all replicas are summed afterwards; with `exchanges` the sums start during the
/// pass. Returns how long the pass waited for other replicas.
///
/// # Errors
/// Those of the device and of an exchange.
pub fn gradients(
    network: &mut Network,
    options: &StepOptions,
    mut exchanges: Option<Exchanges<'_>>,
) -> Result<Duration> {
    let StepOptions { draws, label_smoothing, global_batch, .. } = *options;
    let others = exchanges.as_mut().map(|exchanges| exchanges as &mut dyn Exchange);
    let passed = network.train_pass_with(draws, label_smoothing, global_batch, others);
    match exchanges {
        Some(exchanges) => exchanges.end(passed),
        None => Ok(passed.map(|()| Duration::ZERO)?),
    }
}

/// The rest of a step, after the gradients of all replicas are summed: updates the meter, the running
/// averages and the weights.
///
/// # Errors
/// Those of the device. [`Error::NotFinite`](crate::Error::NotFinite) for a loss that is not finite, before any
/// parameter has changed. An asynchronous device ignores the update instead, and [`Meter::read`] reports the loss later.
pub fn update(
    network: &mut Network,
    optimizer: &mut OptimizerState,
    meter: &mut Meter,
    options: &StepOptions,
) -> Result<()> {
    let device = network.device().clone();
    meter.add(network)?;
    if !device.runs_ahead() {
        meter.read(&device)?.check(options.epoch)?;
    }
    network.finish_step(options.global_batch)?;
    let arena = network.arena_mut();
    Ok(optimizer.step(&device, options.lr, &mut arena.params, &mut arena.grads, arena.trainable)?)
}
