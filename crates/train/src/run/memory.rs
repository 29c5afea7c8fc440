//! Error messages for too little memory, with a batch size that would fit.

use crate::{Config, Error, Result};
use layers::Mode;
use models::Model;
use parallel::in_flight;
use program::{Device, Precision};
use tensor_cpu::Cpu;
use tensor_cuda::{Cuda, gpus};

/// The memory that a device needs besides activations: scratch memory of libraries, the data, parameters and
/// optimizer state.
const BESIDE: u64 = 1 << 30;

/// The error of a network that could not be built on `device` for batches of `batch` samples. If memory was
/// short and the device reports its size, the error has the largest batch that would fit.
pub(crate) fn explain(error: layers::Error, model: &Model, device: &Device, batch: usize) -> Error {
    let short = match &error {
        layers::Error::Tensor(error) => matches!(error, program::Error::OutOfMemory { .. }),
        layers::Error::Layer { source, .. } => matches!(**source, program::Error::OutOfMemory { .. }),
        _ => false,
    };
    match free_memory(device).filter(|_| short) {
        Some(free) => sentence(model, device.precision(), batch, free).map_or(error.into(), Error::Device),
        None => error.into(),
    }
}

fn free_memory(device: &Device) -> Option<u64> {
    let gpu: &Cuda = device.get()?;
    gpus().ok()?.get(gpu.options().gpu)?.free_memory()
}

fn sentence(model: &Model, precision: Precision, batch: usize, free: u64) -> Option<String> {
    let needed = bytes(model, precision, batch).ok()?;
    let advice = match largest_batch(model, precision, batch, free) {
        0 => "not even a batch of 1 would fit; use a smaller network, or `devices.device` cpu".to_owned(),
        fits => format!("`batch_size` {fits} would fit"),
    };
    Some(format!(
        "a batch of {batch} needs about {:.1} GiB of the GPU's memory, of which {:.1} GiB are free; {advice}",
        gib(needed),
        gib(free)
    ))
}

/// The memory-related properties of a run on the CPU.
pub(crate) struct HostRun<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stages: &'a [Model],
    pub(crate) device: &'a Device,
    /// Replicas of this process, which share its memory.
    pub(crate) replicas: usize,
    /// Replicas of all processes.
    pub(crate) world: usize,
    /// Samples of a whole batch: at most those of the data.
    pub(crate) batch: usize,
    /// Whether it resumes from a checkpoint.
    pub(crate) resumes: bool,
}

/// Refuses a run whose activations alone exceed the memory of the machine: the system would kill it during
/// the first steps. GPUs report too little memory themselves.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn check_host(run: &HostRun<'_>) -> Result<()> {
    match (run.device.get::<Cpu>(), cifar::memory::total()) {
        (Some(_), Some(total)) => run.check_within(total),
        _ => Ok(()),
    }
}

impl HostRun<'_> {
    fn check_within(&self, total: u64) -> Result<()> {
        let HostRun { config, stages, replicas, world, .. } = *self;
        let shards = config.shards(world);
        // The smallest part that a replica computes at a time.
        let each = self.batch / shards;
        let needed = self.activations(each)?;
        if needed <= total {
            return Ok(());
        }
        // Parameters, gradients and the optimizer's state; the rest is left for the data and the program.
        let parameters: usize = stages.iter().map(|stage| stage.summary().trainable).sum();
        let room = (total / 8 * 7).saturating_sub(parameters as u64 * 16 * replicas as u64);
        let fits = largest(each, |&batch| self.activations(batch).is_ok_and(|bytes| bytes <= room));
        let flag = match config.training.global_batch_size {
            Some(_) => format!("`global_batch_size` {}", fits * shards),
            None => {
                format!("`batch_size` {}", fits * shards / config.training.virtual_replicas.unwrap_or(world))
            }
        };
        let advice = match fits {
            _ if self.resumes => "resume the run on a machine with more".to_owned(),
            0 => "not even a batch of 1 would fit; use smaller images, or a smaller network".to_owned(),
            _ => format!("{flag} would fit"),
        };
        let on = if replicas > 1 { format!(" on each of {replicas} replicas") } else { String::new() };
        Err(Error::Device(format!(
            "a batch of {each}{on} needs about {:.1} GiB of memory, but there are {:.1} GiB; {advice}",
            gib(needed),
            gib(total)
        )))
    }

    /// Bytes of all activations and their gradients, with batches of this many samples.
    fn activations(&self, batch: usize) -> Result<u64> {
        let HostRun { stages, device, replicas, .. } = *self;
        let micro_batches = self.config.shards(self.world) / self.world;
        let mut numbers = 0_u64;
        for (number, stage) in stages.iter().enumerate() {
            let len = stage.activation_len(batch, Mode::Training, device.recomputes())? as u64;
            let lanes = in_flight(stages.len(), number, micro_batches).max(1);
            numbers = numbers.saturating_add(len.saturating_mul((lanes * replicas) as u64));
        }
        Ok(numbers.saturating_mul(size_of(device.precision())))
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn size_of(precision: Precision) -> u64 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => 4,
        Precision::Bf16 | Precision::Fp16 => 2,
    }
}

/// The approximate bytes of a network for batches of this many samples.
fn bytes(model: &Model, precision: Precision, batch: usize) -> Result<u64> {
    // GPUs keep all activations.
    let numbers = model.activation_len(batch, Mode::Training, false)? as u64;
    Ok(numbers.saturating_mul(size_of(precision)).saturating_add(BESIDE))
}

/// The largest batch below `too_large` that fits; 0 if none does.
fn largest_batch(model: &Model, precision: Precision, too_large: usize, free: u64) -> usize {
    largest(too_large, |batch| bytes(model, precision, *batch).is_ok_and(|bytes| bytes <= free))
}

/// The largest number below `too_large` that fits; 0 if none does.
fn largest(too_large: usize, fits: impl Fn(&usize) -> bool) -> usize {
    let (mut low, mut high) = (0, too_large);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(&middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;
    use crate::run::prepared_run::PreparedRun;

    /// Checks a run with a whole batch of 64 images against this much memory.
    fn checked(config: &Config, replicas: usize, total: u64) -> Result<()> {
        let (data, device) = (cifar::synthetic(1, 90, 10), tensor_cpu::device(1));
        let model = models::small_cnn(10).unwrap();
        let run = PreparedRun::prepare(config, model, data, None, replicas, &device, &mut [])?;
        run.on_host(None, &device, replicas, replicas).check_within(total)
    }

    #[test]
    fn a_run_on_the_cpu_is_refused_if_all_memory_is_too_little() {
        let config = recipe("quick").unwrap().with(|config| config.training.batch_size = 64);
        let len = |batch| models::small_cnn(10).unwrap().activation_len(batch, Mode::Training, true).unwrap();
        let (whole, half) = (4 * len(64) as u64, 4 * len(32) as u64);
        checked(&config, 1, whole).expect("it may be just enough");
        let error = checked(&config, 1, whole - 1).unwrap_err().to_string();
        assert!(
            error.starts_with("a batch of 64 needs about 0.0 GiB of memory, but there are 0.0 GiB"),
            "{error}"
        );
        let named = |error: &str, flag: &str| -> usize {
            let (_, rest) = error.split_once(flag).unwrap_or_else(|| panic!("{error}"));
            rest.strip_suffix(" would fit").unwrap().parse().unwrap()
        };
        let fits = named(&error, "; `batch_size` ");
        assert!((30..64).contains(&fits), "{error}");
        checked(&config.with(|config| config.training.batch_size = fits), 1, whole - 1)
            .expect("the suggested batch fits");

        // All replicas of the machine count. A batch is at most as large as the data.
        let error = checked(&config, 2, whole).unwrap_err().to_string();
        assert!(error.starts_with("a batch of 45 on each of 2 replicas needs"), "{error}");
        let global = config.with(|config| config.training.global_batch_size = Some(64));
        checked(&global, 2, 2 * half).expect("it may be just enough");
        let error = checked(&global, 2, 2 * half - 1).unwrap_err().to_string();
        let fits = named(&error, "; `global_batch_size` ");
        checked(&config.with(|config| config.training.global_batch_size = Some(fits)), 2, 2 * half - 1)
            .unwrap();
        // Virtual replicas are computed one after the other.
        let virtual_replicas = config.with(|config| config.training.virtual_replicas = Some(2));
        checked(&virtual_replicas, 1, 4 * len(45) as u64).expect("it may be just enough");
        let error = checked(&config, 1, 9).unwrap_err().to_string();
        assert!(
            error.ends_with("not even a batch of 1 would fit; use smaller images, or a smaller network"),
            "{error}"
        );
    }

    #[test]
    fn the_largest_batch_that_fits_is_named() {
        let model = models::minigooglenet(10).unwrap();
        let free = 4 << 30;
        let fits = largest_batch(&model, Precision::Fp32, 100_000, free);
        assert!(bytes(&model, Precision::Fp32, fits).unwrap() <= free);
        assert!(bytes(&model, Precision::Fp32, fits + 1).unwrap() > free);
        let half = largest_batch(&model, Precision::Bf16, 100_000, free);
        assert!((2 * fits..=2 * fits + 1).contains(&half), "{fits} {half}");
        let said = sentence(&model, Precision::Fp32, 100_000, free).unwrap();
        assert!(said.contains(&format!("`batch_size` {fits} would fit")), "{said}");
        let said = sentence(&model, Precision::Fp32, 64, 1 << 20).unwrap();
        assert!(said.contains("not even a batch of 1"), "{said}");
    }
}
