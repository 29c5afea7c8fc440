//! The check of the devices before a run: its first step, compared with the CPU's.

use super::prepared_run::PreparedRun;
use crate::Result;
use towers_config::When;
use towers_diagnose::{SampleStep, check_devices, check_new_devices};
use towers_program::Device;

impl PreparedRun<'_> {
    /// Compares the first step on these devices, the ones of this process, with the CPU's. By default each GPU is
    /// checked once, and those that passed are remembered.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with the first op whose result is wrong, and a way around it. Those of the devices.
    pub(super) fn check_devices(&self, devices: &[Device]) -> Result<()> {
        let step = |device: &Device| {
            self.first_step(SampleStep::checked_samples(&self.model, device, self.micro_batch())?)
        };
        match self.config.placement.devices.check_device {
            When::Auto => check_new_devices(devices, step),
            When::Always => check_devices(devices, step),
            When::Never => Ok(()),
        }
    }

    /// The first step of the run: its first images, without augmentation.
    fn first_step(&self, samples: usize) -> Result<SampleStep> {
        let (training, mut images) = (&self.config.training, Vec::new());
        self.data.preprocessed(samples, |image| {
            images.extend_from_slice(image);
            Ok(())
        })?;
        Ok(SampleStep {
            model: self.model.clone(),
            optimizer: training.optimizer,
            lr: training.lr,
            label_smoothing: training.label_smoothing as f32,
            images,
            labels: match self.data.labelling.multi_hot() {
                Some(rows) => rows.all()[..samples * rows.words()].to_vec(),
                None => self.data.train.labels()[..samples].iter().copied().map(u32::from).collect(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Training, recipe};
    use towers_config::When;

    /// By default only GPUs are checked. What is always checked may be a CPU, and a run on it has the same bits.
    #[test]
    fn a_run_begins_with_a_check_and_is_the_same_run() {
        let of = |check_device| {
            let mut config = recipe("quick").unwrap();
            (config.training.epochs, config.training.batch_size) = (1, 8);
            let devices = &mut config.placement.devices;
            (devices.device, devices.threads, devices.check_device) =
                (towers_config::DeviceKind::Cpu, 1, check_device);
            Training::new(&config, towers_cifar::synthetic(1, 16, 8)).run().unwrap().state.history
        };
        let [always, never] = [When::Always, When::Never].map(of);
        let loss = |history: &[towers_callbacks::EpochRecord]| history[0].metrics.clone();
        assert_eq!(loss(&always), loss(&never));
    }
}
