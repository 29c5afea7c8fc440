//! How fast each replica computes beside the others: what says which one the rest wait for.

use crate::Result;
use crate::speed::gather;
use parallel::Collective;
use std::time::Duration;
use tensor::{Backend, Device};

/// In steps of an epoch: replicas tell each other their speeds after 4, 8, 16 steps and so on, soon at first and seldom later, and after
/// the last.
const FIRST_TOLD: u64 = 4;

/// What one replica has computed since the replicas told each other last.
#[derive(Default)]
pub(crate) struct Pace {
    samples: usize,
    computing: Duration,
}

impl Pace {
    /// Whether all tell each other after so many steps of an epoch. No clock decides: all must come together.
    pub(crate) fn is_due(steps_done: u64, steps_per_epoch: u64) -> bool {
        steps_done == steps_per_epoch || (steps_done >= FIRST_TOLD && steps_done.is_power_of_two())
    }

    /// Counts a step: this replica's samples, and how long it computed, waiting for nobody.
    pub(crate) fn add(&mut self, samples: usize, computing: Duration) {
        self.samples += samples;
        self.computing += computing;
    }

    /// The images a second of every replica while it computes, by rank, and begins anew.
    ///
    /// `None` for one replica alone, and where a device runs ahead of the host, whose clock can't tell then how long it computes.
    pub(crate) fn tell(
        &mut self,
        device: &Device,
        collective: &mut dyn Collective,
    ) -> Result<Option<Vec<f64>>> {
        let Pace { samples, computing } = core::mem::take(self);
        if collective.world() == 1 {
            return Ok(None);
        }
        let known = !device.runs_ahead() && !computing.is_zero();
        let own = if known { samples as f64 / computing.as_secs_f64() } else { f64::NAN };
        // Even where it is not known here: others may know.
        let all = gather(collective, device, own)?;
        Ok(Some(all).filter(|all| all.iter().all(|rate| rate.is_finite())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use parallel::run_replicas;

    #[test]
    fn all_replicas_know_every_speed() {
        let told = run_replicas(&[Device::cpu(1), Device::cpu(1)], |mut replica| {
            let rank = replica.rank();
            let mut pace = Pace::default();
            pace.add(10, Duration::from_millis(50));
            pace.add(30 * rank, Duration::from_millis(50));
            let told = pace.tell(&replica.device, replica.collective.as_mut())?;
            let again = pace.tell(&replica.device, replica.collective.as_mut())?;
            Ok::<_, Error>((told, again))
        });
        assert_eq!(told.unwrap(), vec![(Some(vec![100.0, 400.0]), None); 2]);
    }

    #[test]
    fn speeds_are_told_soon_and_then_seldom() {
        let told: Vec<u64> = (1..=20).filter(|&done| Pace::is_due(done, 20)).collect();
        assert_eq!(told, [4, 8, 16, 20]);
    }
}
