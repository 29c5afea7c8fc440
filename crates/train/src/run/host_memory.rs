//! Refuses a run on the CPU that needs more memory than there is, with a batch size that fits.

use crate::run::memory::{gib, largest, size_of};
use crate::run::prepared_run::PreparedRun;
use crate::{Error, Result};
use towers_config::{Training, memory};
use towers_layers::Mode;
use towers_options::{Message, message};
use towers_parallel::in_flight;
use towers_program::{Device, OptimizerState};
use towers_tensor_cpu::Cpu;

/// The memory that an advice leaves free, besides an eighth of all: for the code of the program, scratch
/// memory of its threads, batches that are made ahead of time, and gaps between allocations. `resnet18` on
/// two threads takes as much.
pub(super) const SCRATCH: u64 = 64 << 20;

/// The memory that a run has, in bytes.
struct Room {
    total: u64,
    /// The bytes that the program and the data have already.
    taken: u64,
    /// The bytes that a suggested batch leaves free.
    scratch: u64,
}

impl PreparedRun<'_> {
    /// Refuses a run that exceeds the memory of the machine or container, which `replicas` replicas of this
    /// process share: the system would kill it during the first steps. GPUs report too little memory themselves.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(super) fn check_memory(&self, device: &Device, replicas: usize) -> Result<()> {
        match (device.get::<Cpu>(), memory::total()) {
            (Some(_), Some(total)) => {
                let taken = memory::taken().unwrap_or(0);
                self.check_within(device, replicas, Room { total, taken, scratch: SCRATCH })
            }
            _ => Ok(()),
        }
    }

    fn check_within(&self, device: &Device, replicas: usize, room: Room) -> Result<()> {
        let Room { total, taken, scratch } = room;
        let PreparedRun { config, world, .. } = self;
        let shards = config.shards(*world);
        // The smallest part that a replica computes at a time.
        let each = self.batch / shards;
        let parameters = self.stages.iter().map(|stage| stage.summary().trainable).sum();
        let [weights, copy] = weights(&config.training, device, parameters, replicas)?;
        let activations =
            |batch| Ok::<_, Error>(self.activations(device, batch)?.saturating_mul(replicas as u64));
        let needed = activations(each)?.saturating_add(taken + weights);
        if needed <= total {
            return Ok(());
        }
        let room = (total / 8 * 7).saturating_sub(taken + weights + copy + scratch);
        let fits = largest(each, |&batch| activations(batch).is_ok_and(|bytes| bytes <= room));
        let (key, count) = match config.training.global_batch_size {
            Some(_) => ("global_batch_size", fits * shards),
            None => {
                let batches = config.training.virtual_replicas.unwrap_or(*world)
                    * config.training.gradient_accumulation;
                ("batch_size", fits * shards / batches)
            }
        };
        let advice: Message = match fits {
            _ if self.resumes => "resume the run on a machine with more".into(),
            0 => "not even a batch of 1 would fit; use smaller images, or a smaller network".into(),
            _ => message!([key], " {count} would fit"),
        };
        let on = if replicas > 1 { format!(" on each of {replicas} replicas") } else { String::new() };
        let (needed, total) = (gib(needed), gib(total));
        let short = message!(
            "a batch of {each}{on} needs about {needed:.1} GiB of memory, but there are {total:.1} GiB; "
        );
        Err(Error::Device(short.and(advice)))
    }

    /// Bytes of all activations of a replica and their gradients, with batches of this many samples.
    fn activations(&self, device: &Device, batch: usize) -> Result<u64> {
        let micro_batches = self.config.shards(self.world) / self.world;
        let mut numbers = 0_u64;
        for (number, stage) in self.stages.iter().enumerate() {
            let len = stage.activation_len(batch, Mode::Training, device.recomputes())? as u64;
            let lanes = in_flight(self.stages.len(), number, micro_batches).max(1);
            numbers = numbers.saturating_add(len.saturating_mul(lanes as u64));
        }
        Ok(numbers.saturating_mul(size_of(device.precision())))
    }
}

/// Bytes of the parameters, gradients and optimizer states of all replicas, and of the copy of one
/// replica's parameters and state that a checkpoint is written from.
pub(super) fn weights(
    training: &Training,
    device: &Device,
    parameters: usize,
    replicas: usize,
) -> Result<[u64; 2]> {
    let arenas = OptimizerState::new(device, training.optimizer, 0)?.arenas().count() as u64;
    let kept = arenas + u64::from(training.ema.is_some());
    // Steps of `sam` go back to a copy of the parameters.
    let held = 2 + kept + u64::from(training.sam.is_some());
    let bytes = 4 * parameters as u64;
    Ok([bytes * held * replicas as u64, bytes * (1 + kept)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, recipe};

    /// Checks a run with a whole batch of 64 images against this much memory. The process has taken some of
    /// it.
    fn checked(config: &Config, replicas: usize, total: u64) -> Result<()> {
        let (data, device) = (towers_cifar::synthetic(1, 90, 10), towers_tensor_cpu::device(1));
        let model = towers_models::small_cnn(10).unwrap();
        let devices = vec![device.clone(); replicas];
        let network = config.checked_with(model, [32, 32, 3])?;
        let run =
            PreparedRun::prepare(crate::Training::new(config, data), network, replicas, &devices, &mut [])?;
        run.check_within(&device, replicas, Room { total, taken: TAKEN, scratch: FREE })
    }

    const TAKEN: u64 = 5 << 20;
    const FREE: u64 = 1 << 20;

    #[test]
    fn a_run_on_the_cpu_is_refused_if_all_memory_is_too_little() {
        let config = recipe("quick").unwrap().with(|config| config.training.batch_size = 64);
        let model = towers_models::small_cnn(10).unwrap();
        let len = |batch| model.activation_len(batch, Mode::Training, true).unwrap();
        let activations = |batch| 4 * len(batch) as u64;
        // Parameters, gradients and velocities; a checkpoint copies the first and the last.
        let weights = 4 * model.summary().trainable as u64;
        let whole = TAKEN + 3 * weights + activations(64);
        checked(&config, 1, whole).expect("it may be just enough");
        let error = checked(&config, 1, whole - 1).unwrap_err().to_string();
        assert!(error.starts_with("a batch of 64 needs about 0."), "{error}");
        let named = |error: &str, flag: &str| -> usize {
            let (_, rest) = error.split_once(flag).unwrap_or_else(|| panic!("{error}"));
            rest.strip_suffix(" would fit").unwrap().parse().unwrap()
        };
        let fits = named(&error, "; `batch_size` ");
        let held = TAKEN + 5 * weights + activations(fits) + FREE;
        assert!(held <= whole / 8 * 7 && whole / 8 * 7 < held + activations(2), "{error}");
        checked(&config.with(|config| config.training.batch_size = fits), 1, whole - 1)
            .expect("the suggested batch fits");

        // All replicas of the machine count. A batch is at most as large as the data.
        let error = checked(&config, 2, whole).unwrap_err().to_string();
        assert!(error.starts_with("a batch of 45 on each of 2 replicas needs"), "{error}");
        let global = config.with(|config| config.training.global_batch_size = Some(64));
        let both = TAKEN + 6 * weights + 2 * activations(32);
        checked(&global, 2, both).expect("it may be just enough");
        let error = checked(&global, 2, both - 1).unwrap_err().to_string();
        let fits = named(&error, "; `global_batch_size` ");
        checked(&global.with(|config| config.training.global_batch_size = Some(fits)), 2, both - 1).unwrap();
        // Virtual replicas are computed one after the other.
        let virtual_replicas = config.with(|config| config.training.virtual_replicas = Some(2));
        let one = TAKEN + 3 * weights + activations(45);
        checked(&virtual_replicas, 1, one).expect("it may be just enough");
        let error = checked(&config, 1, 9).unwrap_err().to_string();
        assert!(
            error.ends_with("not even a batch of 1 would fit; use smaller images, or a smaller network"),
            "{error}"
        );
        let adam = config.with(|config| config.training.optimizer = towers_optim::Adam::keras().into());
        checked(&adam, 1, whole + weights).expect("it may be just enough");
        assert!(checked(&adam, 1, whole + weights - 1).is_err(), "Adam keeps twice as much");
        let sam = config.with(|config| config.training.sam = Some(towers_optim::Sam::new(0.05)));
        checked(&sam, 1, whole + weights).expect("it may be just enough");
        assert!(checked(&sam, 1, whole + weights - 1).is_err(), "a step keeps the parameters");
    }
}
