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
/// [`update`]. If the optimizer is [sharpness-aware](OptimizerState::sharpness_aware), [`ascend`] and the passes again come in
/// between.
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
    if optimizer.is_sharpness_aware() {
        ascend(network, optimizer, meter, options)?;
        gradients(network, options, None)?;
    }
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

/// The middle of a [sharpness-aware](OptimizerState::sharpness_aware) step, after the gradients of all replicas are summed:
/// updates the meter and the running averages, and moves the weights to where the loss is higher. Passes of [`gradients`] with
/// the same options follow there, and then [`update`].
///
/// # Errors
/// As [`update`].
pub fn ascend(
    network: &mut Network,
    optimizer: &mut OptimizerState,
    meter: &mut Meter,
    options: &StepOptions,
) -> Result<()> {
    let device = network.device().clone();
    count(network, meter, options)?;
    let arena = network.arena_mut();
    Ok(optimizer.ascend(&device, &mut arena.params, &arena.grads)?)
}

/// The rest of a step, after the gradients of all replicas are summed: updates the meter, the running
/// averages and the weights. After [`ascend`] it brings back the weights first, and updates them alone.
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
    if optimizer.is_sharpness_aware() {
        optimizer.descend(&device, &mut network.arena_mut().params)?;
    } else {
        count(network, meter, options)?;
    }
    let arena = network.arena_mut();
    Ok(optimizer.step(&device, options.lr, &mut arena.params, &mut arena.grads, arena.trainable)?)
}

/// Updates the meter and the running averages.
fn count(network: &mut Network, meter: &mut Meter, options: &StepOptions) -> Result<()> {
    meter.add(network)?;
    if !network.device().runs_ahead() {
        meter.read(network.device())?.check(options.epoch)?;
    }
    Ok(network.finish_step(options.global_batch)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use towers_layers::Mode;
    use towers_optim::{Sam, Sgd};

    /// Two steps, and the loss of each; the weights of the second one are without a value where its loss is to be.
    fn steps(sam: Option<Sam>, spoilt: bool) -> (Vec<f64>, Result<()>, bool) {
        let device = towers_tensor_cpu::device(1);
        let mut network = towers_models::small_cnn(10).unwrap().build(&device, 4, Mode::Training).unwrap();
        network.init(1).unwrap();
        let mut optimizer =
            OptimizerState::new(&device, Sgd::keras(), network.arena().trainable.len).unwrap();
        if let Some(sam) = sam {
            optimizer = optimizer.sharpness_aware(&device, sam).unwrap();
        }
        let (mut meter, mut losses) = (Meter::new(&device).unwrap(), Vec::new());
        network.set_input(&vec![0.5; 4 * network.sample_len()], &[0, 1, 2, 3]).unwrap();
        let mut step = |network: &mut Network, step| {
            let draws = Draws { seed: 1, step, first_sample: 0 };
            let options = StepOptions { draws, label_smoothing: 0.0, lr: 0.1, global_batch: 4, epoch: 1 };
            let done = train_step(network, &mut optimizer, &mut meter, &options);
            losses.push(meter.read(&device).unwrap().loss_sum);
            done
        };
        step(&mut network, 0).unwrap();
        if spoilt {
            let bias = network.arena().slots().iter().find(|slot| slot.name == "dense/bias").unwrap().clone();
            network.arena_mut().load(&device, &bias, &[f32::NAN; 10]).unwrap();
        }
        let bits = |network: &Network| {
            let params = &network.arena().params;
            let values = params.to_vec(&device, 0, params.len()).unwrap();
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let before = bits(&network);
        let done = step(&mut network, 1);
        let moved = bits(&network) != before;
        (losses, done, moved)
    }

    #[test]
    fn losses_are_those_of_the_first_passes() {
        let (plain, done, moved) = steps(None, false);
        assert!(done.is_ok() && moved);
        let (sharp, done, moved) = steps(Some(Sam::new(0.5)), false);
        assert!(done.is_ok() && moved);
        assert_eq!(plain[0], sharp[0]);
        assert_ne!(plain[1], sharp[1]);
    }

    /// Neither by the ascent nor by the update.
    #[test]
    fn a_loss_that_is_no_number_moves_no_weight() {
        for sam in [None, Some(Sam::new(0.5))] {
            let (_, done, moved) = steps(sam, true);
            assert!(matches!(done, Err(Error::NotFinite { epoch: 1, step: 2, .. })) && !moved, "{sam:?}");
        }
    }
}
