//! The check of a device before the first run on it: its first step, compared with the CPU's.

use crate::sample_step::{SampleStep, comparison_device, way_around};
use crate::{Error, Result, gpus};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use towers_layers::Comparison;
use towers_options::message;
use towers_program::Device;

/// The file in the cache folder with a line for each device that passed.
const PASSED: &str = "checked-devices.txt";

/// How long a process waits for the check of another one, which may be stopped. Then it checks by itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether the other is done.
const GLANCE: Duration = Duration::from_millis(20);

/// Compares a step on each of these devices with the same step on its [`comparison_device`]. Devices of one name
/// are checked once. `step` gives the step of a device.
///
/// ```
/// use towers_diagnose::{SampleStep, check_devices};
///
/// let devices = [towers_tensor_cpu::device(1)];
/// check_devices(&devices, |device| -> towers_diagnose::Result<_> {
///     let model = towers_models::small_cnn(10)?;
///     let samples = SampleStep::checked_samples(&model, device, 128)?;
///     Ok(SampleStep::random(model, towers_optim::Adam::keras(), samples))
/// })?;
/// # Ok::<(), towers_diagnose::Error>(())
/// ```
///
/// # Errors
/// [`Error::Wrong`] with the first op whose result is wrong, and a way around it. Those of the devices, and of
/// `step`.
pub fn check_devices<E: From<Error>>(
    devices: &[Device],
    step: impl Fn(&Device) -> Result<SampleStep, E>,
) -> Result<(), E> {
    check(devices, true, step)
}

/// As [`check_devices`], for the GPUs that have not passed yet. Those that pass are remembered with the versions of
/// their software, in a file of the user's cache folder.
///
/// # Errors
/// Those of [`check_devices`].
pub fn check_new_devices<E: From<Error>>(
    devices: &[Device],
    step: impl Fn(&Device) -> Result<SampleStep, E>,
) -> Result<(), E> {
    check(devices, false, step)
}

fn check<E: From<Error>>(
    devices: &[Device],
    always: bool,
    step: impl Fn(&Device) -> Result<SampleStep, E>,
) -> Result<(), E> {
    let passed = gpus::cache_folder().map(|folder| folder.join(PASSED));
    let mut checked: Vec<String> = Vec::new();
    for device in devices {
        let (name, remembers) = (name(device), gpus::is_emulated(device) == Some(false));
        let is_known = || passed.as_deref().is_some_and(|passed| is_in(passed, &name));
        let is_due = || always || remembers && !is_known();
        if checked.contains(&name) || !is_due() {
            continue;
        }
        // Processes of one machine wait for the first, and then find its line.
        let alone = |passed| open_alone(passed, PATIENCE);
        let passed = passed.as_deref().filter(|_| remembers).and_then(alone);
        if is_due() {
            let other = comparison_device(device);
            let results = step(device)?.compare(device, &other)?;
            if let Some(wrong) = results.iter().find(|result| !result.agrees()) {
                return Err(refusal(device, &other, wrong).into());
            }
            if let Some(mut passed) = passed.filter(|_| !is_known()) {
                // A device that can't be remembered is checked again.
                let _ = passed.write_all(format!("{name}\n").as_bytes());
            }
        }
        checked.push(name);
    }
    Ok(())
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
    Error::Wrong(differs.and(way_around(device, &wrong.op)).and(message!(
        "; `towers selftest` writes a report for an issue, and ",
        ["devices.check_device"],
        " never trains without this check"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Not a new one: what is remembered are GPUs.
    #[test]
    fn devices_of_one_name_are_checked_once_and_a_cpu_is_no_new_device() {
        let (devices, steps) = ([1, 1, 2].map(towers_tensor_cpu::device), Cell::new(0));
        let step = |device: &Device| {
            steps.set(steps.get() + 1);
            let model = towers_models::small_cnn(10)?;
            assert_eq!(SampleStep::checked_samples(&model, device, 128)?, 2);
            Ok(SampleStep::random(model, towers_optim::Sgd::keras(), 1))
        };
        check_new_devices::<Error>(&devices, step).unwrap();
        assert_eq!(steps.get(), 0);
        check_devices::<Error>(&devices, step).unwrap();
        assert_eq!(steps.get(), 2);
        let none = |_: &Device| Err(Error::Wrong("no step".into()));
        assert!(check_devices(&devices, none).is_err() && check_devices(&[], none).is_ok());
    }

    #[test]
    fn a_refusal_names_the_op_and_the_ways_around_it() {
        let how = towers_layers::Tolerance::of(towers_program::Precision::Fp32);
        let wrong = Comparison::new("conv2d", "conv2d_forward", [&[1.0], &[2.0]], &how);
        let [device, other] = [towers_tensor_cpu::device(1), towers_tensor_cpu::reference()];
        let said = refusal(&device, &other, &wrong).to_string();
        let begins =
            format!("the first step on {} is not that of {}: {wrong}; try ", device.name(), other.name());
        assert!(said.starts_with(&begins) && said.contains("`devices.no_winograd`"), "{said}");
        assert!(said.ends_with("; `towers selftest` writes a report for an issue, and `devices.check_device` never trains without this check"), "{said}");
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
