use crate::{Error, Result};
use towers_callbacks::Partial;
use towers_layers::Network;
use towers_program::{Device, Storage};

/// The elements of a meter: the sum of the losses in two parts, correct answers, steps.
const LEN: usize = 4;

/// The sums of losses and correct answers over several steps, on the device: see [`towers_program::Backend::meter`].
pub struct Meter(Storage);

/// The sums of a [`Meter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Totals {
    /// The sum of the losses of all samples.
    pub loss_sum: f64,
    /// The number of correct answers.
    pub correct: f64,
    /// The number of steps.
    pub steps: f64,
}

impl Totals {
    /// Refuses a loss that is NaN or infinite, in this epoch, from 1.
    pub(crate) fn check(&self, epoch: u64) -> Result<()> {
        if self.loss_sum.is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite { loss: self.loss_sum, epoch, step: self.steps as u64 + 1 })
    }
}

impl Meter {
    /// A meter without steps.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Meter(device.alloc(LEN)?))
    }

    /// Starts with the sums of an unfinished epoch.
    pub(crate) fn set(&mut self, device: &Device, sums: &Partial) -> Result<()> {
        let high = sums.loss_sum as f32;
        let low = (sums.loss_sum - f64::from(high)) as f32;
        Ok(device.upload(&[high, low, sums.correct as f32, sums.steps as f32], &mut self.0, 0)?)
    }

    /// Adds the metrics of the network's last pass, summed over all replicas.
    pub(crate) fn add(&mut self, network: &Network) -> Result<()> {
        let arena = network.arena();
        Ok(network.device().meter(&arena.grads, arena.metrics, &mut self.0)?)
    }

    /// Reads the sums; waits for an asynchronous device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self, device: &Device) -> Result<Totals> {
        let mut numbers = [0.0; LEN];
        device.download(&self.0, 0, &mut numbers)?;
        let [high, low, correct, steps] = numbers.map(f64::from);
        Ok(Totals { loss_sum: high + low, correct, steps })
    }
}
