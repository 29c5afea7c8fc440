use crate::{DeviceKind, DeviceOptions, Error, Result};
use tensor::Device;

/// The sentence for everybody who asks for a GPU today.
const NO_CUDA: &str = "this build has no CUDA backend yet, so no GPU can be used; run with --device cpu";

/// Checks, without opening any, that [`open_devices`] will find the devices.
///
/// # Errors
/// [`Error::Device`] if a device is asked for that is not there; [`Error::Option`] for absurd numbers.
pub fn check_devices(options: &DeviceOptions) -> Result<()> {
    if options.device == DeviceKind::Cuda {
        return Err(Error::Device(NO_CUDA.to_owned()));
    }
    for (option, value) in [("--replicas", options.replicas), ("--threads", options.threads)] {
        if value > 1024 {
            let accepted = "at most 1024".to_owned();
            return Err(Error::Option { option, value: value.to_string(), accepted });
        }
    }
    Ok(())
}

/// Opens a device for each replica. Host threads are shared out evenly, at least one each.
///
/// # Errors
/// As [`check_devices`].
pub fn open_devices(options: &DeviceOptions) -> Result<Vec<Device>> {
    check_devices(options)?;
    let replicas = options.replicas.max(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    Ok((0..replicas).map(|_| Device::cpu((threads / replicas).max(1))).collect())
}

/// What `towers devices` prints: what there is, and why not more.
pub fn describe_devices() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    vec![format!("cpu: {cores} cores, {}", tensor::simd_level()), format!("cuda: none; {NO_CUDA}")]
}
