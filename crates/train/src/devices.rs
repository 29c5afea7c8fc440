use crate::{DeviceKind, DeviceOptions, Error, Result};
use tensor::Device;

/// The sentence for everybody who asks for a GPU today.
const NO_CUDA: &str = "this build has no CUDA backend yet, so no GPU can be used; run with --device cpu";

/// Opens a device for each replica. Host threads are shared out evenly, at least one each.
///
/// # Errors
/// [`Error::Device`] if a device is asked for that is not there.
pub fn open_devices(options: &DeviceOptions) -> Result<Vec<Device>> {
    if options.device == DeviceKind::Cuda {
        return Err(Error::Device(NO_CUDA.to_owned()));
    }
    let replicas = options.replicas.max(1);
    if replicas > 1024 {
        let (value, accepted) = (replicas.to_string(), "at most 1024".to_owned());
        return Err(Error::Option { option: "--replicas", value, accepted });
    }
    if options.threads > 1024 {
        let (value, accepted) = (options.threads.to_string(), "at most 1024".to_owned());
        return Err(Error::Option { option: "--threads", value, accepted });
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    Ok((0..replicas).map(|_| Device::cpu((threads / replicas).max(1))).collect())
}

/// What `towers devices` prints: what there is, and why not more.
pub fn describe_devices() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    vec![format!("cpu: {cores} cores, {}", tensor::simd_level()), format!("cuda: none; {NO_CUDA}")]
}
