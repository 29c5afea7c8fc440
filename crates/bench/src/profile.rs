//! Where a step's time goes: `towers bench profile`.

use crate::options::LEAST_WARMUP;
use crate::roofline::{Roof, roof};
use crate::subject::{Subject, after_passes, step_options};
use crate::{BenchMode, BenchOptions, Result, Setup};
use serde::Serialize;
use std::time::Instant;
use towers_config::Config;
use towers_layers::{Traced, Work};
use towers_program::Phase;
use towers_train::median;
use towers_train::train_step;

/// Fewer steps have no median worth the name.
const LEAST_STEPS: usize = 5;

/// The time that each part of a step takes, as `towers bench profile --json` prints it. `cargo xtask scaling` reads it.
///
/// All times are medians over the measured steps, in milliseconds, by the host's clock. After each part the device is waited
/// for. On a CPU that costs nothing; on a GPU, which otherwise runs ahead of the host, launches are no longer hidden, so that
/// the parts together take longer than [`step_ms`](Profile::step_ms).
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// What was measured, and on what.
    #[serde(flatten)]
    pub setup: Setup,
    /// What the processor can do at most, on all threads; `None` on other devices.
    pub roof: Option<Roof>,
    /// How many steps were measured.
    pub steps: usize,
    /// A step that was not cut into parts, without `set_input`.
    pub step_ms: f64,
    /// All parts together, without `set_input`.
    pub parts_ms: f64,
    /// Copying a batch from the host. A GPU in training does not: its data set is there already.
    pub set_input_ms: f64,
    /// Layer by layer, in the order of the forward pass.
    pub layers: Vec<LayerProfile>,
    /// The loss and its gradient.
    pub loss_ms: f64,
    /// Work on all gradients after the last layer's backward pass; training alone.
    pub gradients_ms: f64,
    /// Running averages and optimizer; training alone. Sharpness-aware steps count both of their passes in all parts.
    pub update_ms: f64,
    /// Bytes that replicas add up beside the gradients: sums behind running averages, metrics, a signal.
    pub tail_bytes: usize,
}

/// One layer of a [`Profile`].
#[derive(Clone, Debug, Serialize)]
pub struct LayerProfile {
    /// The layer's name.
    pub name: String,
    /// The layer's type as Keras spells it.
    pub kind: String,
    /// Height, width, channels.
    pub input: [usize; 3],
    /// Height, width, channels.
    pub output: [usize; 3],
    /// Of the forward pass, for one sample, see [`Work::multiply_adds`].
    pub multiply_adds: usize,
    /// Trainable parameters.
    pub params: usize,
    /// The forward pass.
    pub forward_ms: f64,
    /// The backward pass, both gradients; 0 in inference.
    pub backward_ms: f64,
    /// Both, as a share of [`Profile::parts_ms`].
    pub share: f64,
    /// Two operations a multiply-add; 0 where there are none.
    pub forward_gflops: f64,
    /// The same of the backward pass.
    pub backward_gflops: f64,
}

/// Measures the parts of a step of a recipe's network, one replica, on random data.
///
/// Steps that are cut into parts take turns with steps that are not, for `options.seconds` in all.
///
/// # Errors
/// What the device says.
pub fn profile(config: &Config, options: &BenchOptions) -> Result<Profile> {
    let subject = Subject::new(config, options)?;
    let Subject { device, mut network, work, mut optimizer, mut meter, batch, images, labels } = subject;
    let train = options.mode == BenchMode::Train;
    let roof = roof(&device)?;
    let mut clock = Clock::new(work.len());
    let (warmup, least) = (options.warmup.max(LEAST_WARMUP), options.repeats.max(LEAST_STEPS));
    let (mut began, mut step) = (Instant::now(), 0);
    while step < warmup + least || began.elapsed().as_secs_f64() < options.seconds {
        if step == warmup {
            clock.forget();
            began = Instant::now();
        }
        let numbers = step_options(config, step as u64, batch);
        device.synchronize()?;
        clock.start();
        network.set_input(&images, &labels)?;
        device.synchronize()?;
        clock.lap(clock.set_input());
        if train {
            train_step(&mut network, &mut optimizer, &mut meter, &numbers)?;
        } else {
            network.evaluate_pass()?;
        }
        device.synchronize()?;
        clock.lap(clock.step());
        if train {
            for (after, _) in after_passes(&optimizer) {
                network.trace_train_pass(numbers.draws, 0.0, batch, |traced| clock.lap(clock.row(traced)))?;
                after(&mut network, &mut optimizer, &mut meter, &numbers)?;
                device.synchronize()?;
                clock.lap(clock.update());
            }
        } else {
            network.trace_evaluate_pass(|traced| clock.lap(clock.row(traced)))?;
        }
        clock.end_step();
        step += 1;
    }
    let passes = if train { after_passes(&optimizer).len() } else { 1 };
    let arena = network.arena();
    let parts_ms: f64 = (0..=clock.update()).map(|row| clock.ms(row)).sum();
    let layer = |(k, work): (usize, &Work)| {
        let (forward, backward) = (clock.ms(clock.forward(k)), clock.ms(clock.backward(k)));
        LayerProfile::new(work, batch * passes, forward, backward, parts_ms)
    };
    Ok(Profile {
        setup: Setup::of(config, options, batch, &device),
        roof,
        steps: step - warmup,
        step_ms: clock.ms(clock.step()),
        parts_ms,
        set_input_ms: clock.ms(clock.set_input()),
        layers: work.iter().enumerate().map(layer).collect(),
        loss_ms: clock.ms(clock.loss()),
        gradients_ms: clock.ms(clock.gradients()),
        update_ms: clock.ms(clock.update()),
        tail_bytes: size_of::<f32>() * (arena.grads.len() - arena.trainable.len),
    })
}

impl LayerProfile {
    fn new(work: &Work, samples: usize, forward_ms: f64, backward_ms: f64, parts_ms: f64) -> Self {
        let gflops = |multiply_adds: usize, ms: f64| match multiply_adds {
            0 => 0.0,
            _ if ms == 0.0 => 0.0,
            each => (2 * each * samples) as f64 / (ms * 1e6),
        };
        LayerProfile {
            name: work.name.clone(),
            kind: work.kind.to_string(),
            input: [work.x.h, work.x.w, work.x.c],
            output: [work.y.h, work.y.w, work.y.c],
            multiply_adds: work.multiply_adds,
            params: work.trainable,
            forward_ms,
            backward_ms,
            share: (forward_ms + backward_ms) / parts_ms,
            forward_gflops: gflops(work.multiply_adds, forward_ms),
            backward_gflops: gflops(work.backward_multiply_adds, backward_ms),
        }
    }
}

/// A row of times for each part of a step.
struct Clock {
    last: Instant,
    /// Of the step that is measured now.
    now: Vec<f64>,
    rows: Vec<Vec<f64>>,
    layers: usize,
}

impl Clock {
    fn new(layers: usize) -> Self {
        let rows = 2 * layers + 5;
        Clock { last: Instant::now(), now: vec![0.0; rows], rows: vec![Vec::new(); rows], layers }
    }

    /// The row of the part that a step of a program belongs to.
    fn row(&self, traced: Traced) -> usize {
        let Traced::Step(program, step) = traced else { return self.gradients() };
        let step = &program.steps[step];
        match step.phase {
            Phase::Forward => self.forward(step.layer),
            Phase::Loss => self.loss(),
            Phase::Backward => self.backward(step.layer),
        }
    }

    fn forward(&self, layer: usize) -> usize {
        layer
    }

    fn backward(&self, layer: usize) -> usize {
        self.layers + layer
    }

    fn loss(&self) -> usize {
        2 * self.layers
    }

    fn gradients(&self) -> usize {
        2 * self.layers + 1
    }

    /// The last of the parts of a step.
    fn update(&self) -> usize {
        2 * self.layers + 2
    }

    fn set_input(&self) -> usize {
        2 * self.layers + 3
    }

    /// A whole step.
    fn step(&self) -> usize {
        2 * self.layers + 4
    }

    fn start(&mut self) {
        self.last = Instant::now();
    }

    /// Adds the time since the last call to a row.
    fn lap(&mut self, row: usize) {
        let now = Instant::now();
        self.now[row] += (now - self.last).as_secs_f64();
        self.last = now;
    }

    /// Notes the times of a step, and begins the next one's.
    fn end_step(&mut self) {
        for (row, seconds) in self.rows.iter_mut().zip(&mut self.now) {
            row.push(core::mem::take(seconds));
        }
    }

    fn forget(&mut self) {
        self.rows.iter_mut().for_each(Vec::clear);
    }

    /// The median of a row in milliseconds, to a ten-thousandth; 0 where nothing was noted.
    fn ms(&self, row: usize) -> f64 {
        match &self.rows[row][..] {
            [] => 0.0,
            times => (median(times) * 1e7).round() / 1e4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_config::recipe;

    fn profile_of(name: &str, mode: BenchMode) -> Profile {
        let mut config = recipe(name).unwrap();
        config.placement.devices.threads = 1;
        let options = BenchOptions { mode, batch: Some(2), seconds: 0.0, repeats: 1, warmup: 1 };
        profile(&config, &options).unwrap()
    }

    /// The layers that multiply. Others may do nothing, in less time than is told.
    fn busy(profile: &Profile) -> impl Iterator<Item = &LayerProfile> {
        let mut busy = profile.layers.iter().filter(|layer| layer.multiply_adds > 0).peekable();
        assert!(busy.peek().is_some(), "{profile:?}");
        busy
    }

    #[test]
    fn a_training_step_is_the_sum_of_its_parts() {
        let profile = profile_of("quick", BenchMode::Train);
        assert_eq!(
            (profile.steps, profile.setup.batch, profile.setup.mode),
            (LEAST_STEPS, 2, BenchMode::Train)
        );
        let layers: f64 = profile.layers.iter().map(|layer| layer.forward_ms + layer.backward_ms).sum();
        let all = layers + profile.loss_ms + profile.gradients_ms + profile.update_ms;
        assert!((all - profile.parts_ms).abs() < 1e-9 * all, "{all} {}", profile.parts_ms);
        assert!(busy(&profile).all(|layer| layer.forward_ms > 0.0 && layer.backward_ms > 0.0));
        assert!(profile.layers.iter().map(|layer| layer.share).sum::<f64>() < 1.0);
        // Two metrics and a signal, and two sums a channel of each normalization.
        let channels = profile.layers.iter().filter(|layer| layer.kind.starts_with("BatchNormalization"));
        let sums: usize = channels.map(|layer| 2 * layer.output[2]).sum();
        assert_eq!(profile.tail_bytes, 4 * (sums + 3));
    }

    #[test]
    fn a_sharpness_aware_step_computes_twice_as_much() {
        let mut config = recipe("quick").unwrap();
        config.placement.devices.threads = 1;
        config.training.sam = Some("0.05".parse().unwrap());
        let options = BenchOptions { batch: Some(2), seconds: 0.0, ..BenchOptions::default() };
        let profile = profile(&config, &options).unwrap();
        for layer in busy(&profile) {
            let operations = layer.forward_gflops * layer.forward_ms * 1e6;
            let expected = (2 * 2 * 2 * layer.multiply_adds) as f64;
            assert!((operations - expected).abs() < 1e-6 * expected, "{}: {operations}", layer.name);
        }
    }

    #[test]
    fn inference_has_no_backward_parts() {
        let profile = profile_of("quick", BenchMode::Infer);
        assert!(profile.layers.iter().all(|layer| layer.backward_ms == 0.0));
        assert!(busy(&profile).all(|layer| layer.forward_ms > 0.0));
        assert_eq!((profile.gradients_ms, profile.update_ms), (0.0, 0.0));
    }

    /// The counts of the networks' papers and tutorials.
    #[test]
    fn multiply_adds_of_the_recipes() {
        for (name, multiply_adds, params) in
            [("minigooglenet", 234_597_920, 1_652_826), ("keras_cnn", 20_741_120, 1_250_858)]
        {
            let work = towers_models::by_name(name, 10).unwrap().unwrap().graph().work();
            assert_eq!(work.iter().map(|work| work.multiply_adds).sum::<usize>(), multiply_adds, "{name}");
            assert_eq!(work.iter().map(|work| work.trainable).sum::<usize>(), params, "{name}");
        }
    }
}
