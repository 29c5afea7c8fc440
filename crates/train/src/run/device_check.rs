//! The check of a device before the first run on it: its first step, compared with the CPU's.

use super::prepared_run::PreparedRun;
use super::sample_step::{SampleStep, comparison_device, way_around};
use crate::{Error, Result, gpus};
use config::When;
use layers::{Comparison, Mode};
use options::message;
use program::Device;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The file in the cache folder with a line for each device that passed.
const PASSED: &str = "checked-devices.txt";

/// How long a process waits for the check of another one, which may be stopped. Then it checks by itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether the other is done.
const GLANCE: Duration = Duration::from_millis(20);

/// Samples of a step on the CPU, which the slow reference repeats. A CPU's algorithms don't depend on their
/// number.
const ON_CPU: usize = 2;

/// The most activations of a step that a CPU repeats: of a batch of 128 in a large network for CIFAR. That takes
/// seconds, with large images too.
const ACTIVATIONS: usize = 1 << 28;

impl PreparedRun<'_> {
    /// Compares the first step on these devices, the ones of this process, with the CPU's. By default each GPU is
    /// checked once, and what passed is remembered.
    ///
    /// # Errors
    /// [`Error::Device`] with the first op whose result is wrong, and a way around it. Those of the devices.
    pub(super) fn check_devices(&self, devices: &[Device]) -> Result<()> {
        let passed = gpus::cache_folder().map(|folder| folder.join(PASSED));
        let mut checked: Vec<String> = Vec::new();
        let when = self.config.placement.devices.check_device;
        for device in devices {
            let (name, remembers) = (name(device), gpus::is_real(device));
            let is_known = || passed.as_deref().is_some_and(|passed| is_in(passed, &name));
            let is_due = || when == When::Always || when == When::Auto && remembers && !is_known();
            if checked.contains(&name) || !is_due() {
                continue;
            }
            // Processes of one machine wait for the first, and then find its line.
            let alone = |passed| open_alone(passed, PATIENCE);
            let passed = passed.as_deref().filter(|_| remembers).and_then(alone);
            if is_due() {
                self.check_device(device, self.micro_batch())?;
                if let Some(mut passed) = passed.filter(|_| !is_known()) {
                    // A device that can't be remembered is checked again.
                    let _ = passed.write_all(format!("{name}\n").as_bytes());
                }
            }
            checked.push(name);
        }
        Ok(())
    }

    fn check_device(&self, device: &Device, samples: usize) -> Result<()> {
        let other = comparison_device(device);
        let mut samples = if device.kind() == "cpu" { samples.min(ON_CPU) } else { samples };
        while samples > 1 && self.model.activation_len(samples, Mode::Training, false)? > ACTIVATIONS {
            samples = samples.div_ceil(2);
        }
        let results = self.sample_step(samples)?.compare(device, &other)?;
        match results.iter().find(|result| !result.agrees()) {
            Some(wrong) => Err(refusal(device, &other, wrong)),
            None => Ok(()),
        }
    }

    /// The first step of the run: its first images, without augmentation.
    fn sample_step(&self, samples: usize) -> Result<SampleStep> {
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
            labels: self.data.train.labels()[..samples].iter().copied().map(u32::from).collect(),
        })
    }
}

/// Everything that decides the results of a device: its model, the software, and the options.
fn name(device: &Device) -> String {
    match gpus::software(device) {
        Some(software) => format!("{}, {software}", device.model()),
        None => device.name(),
    }
}

fn is_in(passed: &Path, name: &str) -> bool {
    fs::read_to_string(passed).is_ok_and(|text| text.lines().any(|line| line == name))
}

/// The file to append to, which no other process has open so. `None` if that fails, or if another has it for
/// longer than `patience`.
fn open_alone(passed: &Path, patience: Duration) -> Option<File> {
    passed.parent().map_or(Ok(()), fs::create_dir_all).ok()?;
    let file = OpenOptions::new().create(true).append(true).open(passed).ok()?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => sleep(GLANCE),
            Err(_) => return None,
        }
    }
}

fn refusal(device: &Device, other: &Device, wrong: &Comparison) -> Error {
    let (name, other) = (device.name(), other.name());
    let differs = message!("the first step on {name} is not that of {other}: {wrong}; ");
    Error::Device(differs.and(way_around(device, &wrong.op)).and(message!(
        "; `towers selftest` writes a report for an issue, and ",
        ["devices.check_device"],
        " never trains without this check"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Training, recipe};

    /// By default only GPUs are checked. What is always checked may be a CPU, and a run on it has the same bits.
    #[test]
    fn a_run_begins_with_a_check_and_is_the_same_run() {
        let of = |check_device| {
            let mut config = recipe("quick").unwrap();
            (config.training.epochs, config.training.batch_size) = (1, 8);
            let devices = &mut config.placement.devices;
            (devices.device, devices.threads, devices.check_device) =
                (config::DeviceKind::Cpu, 1, check_device);
            Training::new(&config, cifar::synthetic(1, 16, 8)).run().unwrap().state.history
        };
        let [always, never] = [When::Always, When::Never].map(of);
        let loss = |history: &[callbacks::EpochRecord]| history[0].metrics.clone();
        assert_eq!(loss(&always), loss(&never));
    }

    #[test]
    fn a_device_is_known_by_its_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let passed = folder.path().join("a/checked");
        assert!(!is_in(&passed, "GPU, driver 1"));
        let alone = || open_alone(&passed, Duration::ZERO);
        alone().unwrap().write_all(b"GPU, driver 12\n").unwrap();
        alone().unwrap().write_all(b"GPU, driver 3\n").unwrap();
        let known = ["GPU, driver 12", "GPU, driver 3", "GPU, driver 1", ""].map(|name| is_in(&passed, name));
        assert_eq!(known, [true, true, false, false]);
        let mut other = alone().unwrap();
        assert!(alone().is_none(), "a process that is stopped would keep this one waiting");
        other.write_all(b"GPU, driver 4\n").unwrap();
        drop(other);
        assert!(alone().is_some());
    }
}
