//! When shards move from slow replicas to fast ones in the middle of a run.

use crate::Config;
use towers_config::DeviceWeights;
use towers_parallel::{Shards, Weights};

/// The least gain in the time of a step, as predicted, for which shards move.
const LEAST_GAIN: f64 = 0.05;

/// A better division of the shards.
pub(crate) struct Division {
    pub(crate) weights: Weights,
    pub(crate) shards: Shards,
}

/// Whether shards may move between `world` replicas: with virtual replicas they change no bit. Stages have
/// memory for the micro-batches that they began with.
pub(crate) fn moves_shards(config: &Config, world: usize) -> bool {
    config.placement.device_weights == DeviceWeights::Auto
        && config.training.virtual_replicas.is_some()
        && config.stages() == 1
        && world > 1
}

/// A division with which the slowest replica takes clearly less time, at these images per second.
pub(crate) fn better(shards: &Shards, rates: &[f64]) -> Option<Division> {
    let weights = Weights::of_speeds(rates).ok()?;
    let moved = Shards::shared_out(shards.total(), &weights, shards.rank());
    let slowest = |shards: &Shards| {
        let times = shards.counts().iter().zip(rates).map(|(count, rate)| *count as f64 / rate);
        times.fold(0.0, f64::max)
    };
    let gains = slowest(&moved) < (1.0 - LEAST_GAIN) * slowest(shards);
    gains.then_some(Division { weights, shards: moved })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_move_if_a_step_gets_clearly_shorter() {
        let even = Shards::new(8, 2, 1);
        let moved = better(&even, &[300.0, 100.0]).unwrap();
        assert_eq!((moved.shards.counts(), moved.shards.own()), (&[6, 2][..], 6..8));
        assert_eq!(moved.weights.to_string(), "3,1");
        // Back, since the first one is no faster any more.
        let back = better(&moved.shards, &[100.0, 102.0]).unwrap();
        assert_eq!(back.shards.counts(), [4, 4]);
        // 5 and 3 shards would take as long as 4 and 4 do, or hardly less.
        for rates in [[100.0, 100.0], [124.0, 100.0], [130.0, 100.0], [100.0, 0.0]] {
            let moved = better(&even, &rates);
            assert!(moved.is_none(), "{rates:?}: {:?}", moved.unwrap().shards);
        }
        // As few shards as replicas can't move.
        assert!(better(&Shards::new(2, 2, 0), &[900.0, 100.0]).is_none());
    }
}
