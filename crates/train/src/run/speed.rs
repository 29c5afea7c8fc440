//! Measures training passes on a device before a run, for weights of replicas and for cuts of a network.
//!
//! It builds a separate network and frees it afterwards. The run's network, optimizer and random numbers
//! don't exist yet, so the measurement can't change them.

use crate::Result;
use crate::run::memory;
use std::time::{Duration, Instant};
use towers_layers::{Draws, Exchange, Mode, Network};
use towers_models::Model;
use towers_parallel::{Collective, Stage, Weights};
use towers_program::ops::Neighbor;
use towers_program::{Device, Layout, Span, Storage};

/// Passes before the measurement: the first one compiles kernels and chooses algorithms.
const WARM_UP: usize = 2;

/// The least number of measured passes, and their least duration.
const LEAST_PASSES: usize = 3;
const LEAST_TIME: Duration = Duration::from_millis(300);

/// Measures all replicas at once, as they work in training, with passes over `batch` samples each. Returns
/// the same weights on all. A pipeline is as fast as its slowest stage.
pub(crate) fn measure(
    model: &Model,
    device: &Device,
    collective: &mut dyn Collective,
    stage: &mut Stage,
    batch: usize,
) -> Result<Weights> {
    let mut trial = Trial::new(model, device, batch)?;
    for _ in 0..WARM_UP {
        trial.pass()?;
    }
    collective.barrier()?;
    let (began, mut seconds) = (Instant::now(), Vec::new());
    while seconds.len() < LEAST_PASSES || began.elapsed() < LEAST_TIME {
        seconds.push(trial.pass()?.as_secs_f64());
    }
    let own = batch as f64 / median(&seconds).max(1e-9);
    let stages = stage.replica.gather_numbers(device, &[own])?;
    let replicas = collective.gather_numbers(device, &[stages.into_iter().fold(f64::INFINITY, f64::min)])?;
    Ok(Weights::of_speeds(&replicas)?)
}

/// The median of some measurements, at least one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// A network, or a piece of one, with an arbitrary batch.
pub(crate) struct Trial {
    network: Network,
    draws: Draws,
    batch: usize,
    neighbors: Neighbors,
}

/// Replaces the stages next to a piece: an output that it sends comes back as its gradient.
#[derive(Default)]
struct Neighbors(Vec<f32>);

impl Exchange for Neighbors {
    fn send(
        &mut self,
        to: Neighbor,
        device: &Device,
        data: &Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        if to == Neighbor::Previous || self.0.len() == at.shape.len() {
            return Ok(());
        }
        self.0.resize(at.shape.len(), 0.0);
        device.download(data, at.offset, &mut self.0)
    }

    fn receive(
        &mut self,
        from: Neighbor,
        device: &Device,
        data: &mut Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        match from {
            Neighbor::Previous => device.fill(0.5, data, Span::new(at.offset, at.shape.len())),
            Neighbor::Next => device.upload(&self.0, data, at.offset),
        }
    }
}

impl Trial {
    pub(crate) fn new(model: &Model, device: &Device, batch: usize) -> Result<Self> {
        let built = model.build_stage(device, batch, Mode::Training, 1);
        let mut network = built.map_err(|error| memory::explain(error, model, device, batch))?;
        network.init(0)?;
        network
            .set_input(&vec![0.5; network.sample_len() * batch], &vec![0; batch * network.label_words()])?;
        let draws = Draws { seed: 0, step: 0, first_sample: 0 };
        Ok(Trial { network, draws, batch, neighbors: Neighbors::default() })
    }

    /// The duration of a training pass.
    pub(crate) fn pass(&mut self) -> Result<Duration> {
        let Trial { network, draws, batch, neighbors } = self;
        let device = network.device().clone();
        let began = Instant::now();
        network.train_pass_with(*draws, 0.0, *batch, Some(neighbors))?;
        device.synchronize()?;
        Ok(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn half_of_the_numbers_lie_below_the_median() {
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[5.0])], [2.0, 2.5, 5.0]);
    }
}
