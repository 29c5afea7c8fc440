//! The throughput of each replica, which shows the one that the others wait for.

use crate::Result;
use std::time::Duration;
use towers_parallel::Collective;
use towers_program::Device;

/// Replicas exchange their throughput after 4, 8, 16 steps of an epoch and so on, and after the last step.
const FIRST_EXCHANGE: u64 = 4;

/// If shards may move, they exchange it after this many steps each time, and so move soon.
const EXCHANGE_EVERY: u64 = 8;

/// One replica's work since the last exchange.
#[derive(Default)]
pub(crate) struct Throughput {
    samples: usize,
    computing: Duration,
}

impl Throughput {
    /// Whether replicas exchange after this many steps of an epoch. No clock decides, since all must take
    /// part.
    pub(crate) fn is_due(steps_done: u64, steps_per_epoch: u64, shards_move: bool) -> bool {
        let again =
            steps_done.is_power_of_two() || (shards_move && steps_done.is_multiple_of(EXCHANGE_EVERY));
        steps_done == steps_per_epoch || (steps_done >= FIRST_EXCHANGE && again)
    }

    /// Counts a step: this replica's samples, and its computing time without waiting.
    pub(crate) fn add(&mut self, samples: usize, computing: Duration) {
        self.samples += samples;
        self.computing += computing;
    }

    /// Returns the images per second of every replica while it computes, by rank, and resets the counts.
    ///
    /// `None` if they are not known, or there is one replica.
    pub(crate) fn exchange(
        &mut self,
        device: &Device,
        collective: &mut dyn Collective,
    ) -> Result<Option<Vec<f64>>> {
        if collective.world() == 1 {
            return Ok(None);
        }
        let samples = core::mem::take(&mut self.samples);
        let computing = core::mem::take(&mut self.computing);
        // Samples without computing time have no throughput; then it is unknown.
        let all = collective.gather_numbers(device, &[samples as f64 / computing.as_secs_f64()])?;
        Ok(Some(all).filter(|all| all.iter().all(|rate| rate.is_finite())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use towers_parallel::run_replicas;

    #[test]
    fn all_replicas_know_every_speed() {
        let rates =
            run_replicas(&[towers_tensor_cpu::device(1), towers_tensor_cpu::device(1)], |mut replica| {
                let rank = replica.rank();
                let mut throughput = Throughput::default();
                throughput.add(10, Duration::from_millis(50));
                throughput.add(30 * rank, Duration::from_millis(50));
                let rates = throughput.exchange(&replica.device, replica.collective.as_mut())?;
                let again = throughput.exchange(&replica.device, replica.collective.as_mut())?;
                Ok::<_, Error>((rates, again))
            });
        assert_eq!(rates.unwrap(), vec![(Some(vec![100.0, 400.0]), None); 2]);
    }

    #[test]
    fn speeds_are_told_soon_and_then_seldom() {
        let due: Vec<u64> = (1..=20).filter(|&done| Throughput::is_due(done, 20, false)).collect();
        assert_eq!(due, [4, 8, 16, 20]);
        let due: Vec<u64> = (1..=100).filter(|&done| Throughput::is_due(done, 100, true)).collect();
        assert!(due.windows(2).all(|due| due[1] - due[0] <= EXCHANGE_EVERY), "{due:?}");
    }
}
