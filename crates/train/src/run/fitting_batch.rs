//! The largest batch that a run has memory for.

use crate::gpus::free_memory;
use crate::run::host_memory::{SCRATCH, weights};
use crate::run::memory::{BESIDE, gib, size_of};
use crate::run::prepared_run::no_device;
use crate::{Config, Error, Result};
use towers_config::memory;
use towers_dataset::Dataset;
use towers_layers::Mode;
use towers_models::Model;
use towers_options::{Message, message};
use towers_program::Device;
use towers_tensor_cpu::Cpu;

/// An epoch has at least so many steps: larger batches would learn little.
const STEPS: usize = 10;

/// A batch size that was chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FittingBatch {
    /// The value for [`batch_size`](towers_config::Training::batch_size).
    pub size: usize,
    /// The reason for not taking twice as many.
    pub reason: Message,
}

/// The largest power of two for `batch_size` with which the devices of a new run, one for each replica, have enough memory:
/// seven eighths of what is free now. An epoch keeps at least ten steps.
///
/// It counts activations, parameters, gradients and the optimizer's state, as the check before a run does. On the CPU all
/// replicas share the memory. Where the system doesn't tell how much is free, only the steps count.
///
/// ```
/// use towers_train::{fitting_batch, open_devices};
///
/// let mut config = towers_config::recipe("quick")?;
/// let data = towers_cifar::synthetic(1, 400, 10);
/// let devices = open_devices(&config.placement.devices, &config.training.arithmetic)?;
/// config.training.batch_size = fitting_batch(&config, &data, &devices)?.size;
/// assert_eq!(config.training.batch_size, 32, "with 64 there are six steps");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Device`] if not even a batch of 1 fits, or there is no device; those of the configuration, which has no stages.
pub fn fitting_batch(config: &Config, data: &Dataset, devices: &[Device]) -> Result<FittingBatch> {
    let device = devices.first().ok_or_else(no_device)?;
    if config.stages() > 1 {
        let accepted = message!("a number with ", ["devices.pipeline_stages"]);
        return Err(Error::option("batch_size", "auto", accepted));
    }
    let model = config.checked(data.train.shape(), data.classes.len())?.into_model();
    let free = match device.get::<Cpu>() {
        Some(_) => memory::available(),
        None => devices.iter().filter_map(free_memory).min(),
    };
    fitting(config, &model, data.train.len(), devices, free)
}

fn fitting(
    config: &Config,
    model: &Model,
    images: usize,
    devices: &[Device],
    free: Option<u64>,
) -> Result<FittingBatch> {
    let device = devices.first().ok_or_else(no_device)?;
    let training = &config.training;
    // The replicas that share a memory, and what must stay free.
    let (sharing, beside) = match device.get::<Cpu>() {
        Some(_) => (devices.len(), SCRATCH),
        None => (1, BESIDE),
    };
    let [weights, copy] = weights(training, device, model.summary().trainable, sharing)?;
    let needed = |batch| {
        let numbers = model.activation_len(batch, Mode::Training, device.recomputes())? as u64;
        let activations = numbers.saturating_mul(size_of(device.precision()) * sharing as u64);
        Ok::<_, Error>(activations.saturating_add(weights + copy + beside))
    };
    let fits = |batch| {
        let needed = needed(batch)?;
        Ok::<_, Error>(free.is_none_or(|free| needed <= free / 8 * 7))
    };
    let learned = images - (images as f64 * training.augmentation.validation_split) as usize;
    // The batches of a step.
    let parts =
        training.virtual_replicas.unwrap_or(devices.len()).saturating_mul(training.gradient_accumulation);
    let has_steps = |batch: usize| batch.saturating_mul(parts).saturating_mul(STEPS) <= learned;
    let mut size = 1;
    if !fits(size)? {
        let free = gib(free.unwrap_or(0));
        let why = message!(
            "{free:.1} GiB of memory are free, and not even a batch of 1 would fit; use a smaller network"
        );
        return Err(Error::Device(why));
    }
    while has_steps(2 * size) && fits(2 * size)? {
        size *= 2;
    }
    let twice = 2 * size;
    let reason = if has_steps(twice) {
        let [needed, free] = [needed(twice)?, free.unwrap_or(0)].map(gib);
        message!(
            "{twice} would need about {needed:.1} GiB of memory, of which {free:.1} GiB are free, and an eighth stays so"
        )
    } else {
        message!("{twice} would leave less than {STEPS} steps an epoch")
    };
    Ok(FittingBatch { size, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

    fn chosen(config: &Config, images: usize, replicas: usize, free: u64) -> Result<FittingBatch> {
        let model = towers_models::small_cnn(10).unwrap();
        let devices = vec![towers_tensor_cpu::device(1); replicas];
        fitting(config, &model, images, &devices, Some(free))
    }

    #[test]
    fn the_largest_power_of_two_fits() {
        let config = recipe("quick").unwrap();
        let model = towers_models::small_cnn(10).unwrap();
        let bytes = |batch| 4 * model.activation_len(batch, Mode::Training, true).unwrap() as u64;
        // Parameters, gradients and velocities, and a copy of the first and the last.
        let weights = 4 * model.summary().trainable as u64;
        let enough = |batch, replicas: u64| {
            (SCRATCH + (3 * replicas + 2) * weights + replicas * bytes(batch)).div_ceil(7) * 8
        };
        let of = |replicas, free| chosen(&config, 1_000_000, replicas, free).unwrap();
        let fit = of(1, enough(64, 1));
        assert_eq!(fit.size, 64);
        assert!(fit.reason.to_string().starts_with("128 would need about 0."), "{}", fit.reason);
        assert_eq!(of(1, enough(64, 1) - 8).size, 32);
        assert_eq!(of(1, enough(127, 1)).size, 64);
        assert_eq!([of(2, enough(64, 2)).size, of(2, enough(64, 2) - 8).size], [64, 32]);
        assert!(of(2, enough(64, 1)).size < 64, "both share the memory");
        let told = chosen(&config, 1000, 1, enough(1, 1) - 8).unwrap_err().to_string();
        assert!(told.contains("not even a batch of 1"), "{told}");
    }

    #[test]
    fn an_epoch_keeps_ten_steps() {
        let mut config = recipe("quick").unwrap();
        let of = |config: &Config, images, replicas| chosen(config, images, replicas, 1 << 40).unwrap();
        let fit = of(&config, 640, 1);
        assert_eq!(
            (fit.size, fit.reason.to_string().as_str()),
            (64, "128 would leave less than 10 steps an epoch")
        );
        assert_eq!([of(&config, 639, 1).size, of(&config, 640, 2).size, of(&config, 3, 1).size], [32, 32, 1]);
        config.training.augmentation.validation_split = 0.5;
        assert_eq!(of(&config, 640, 1).size, 32);
        let accumulating = config.with(|config| config.training.gradient_accumulation = 4);
        assert_eq!(of(&accumulating, 640, 1).size, 8, "a step takes four batches");
        config.training.virtual_replicas = Some(4);
        assert_eq!(of(&config, 640, 1).size, 8, "of each virtual replica");
    }
}
