use crate::{Error, Result, gpus};
use towers_config::{Arithmetic, DeviceKind, Devices};
use towers_options::hint;
use towers_program::{Device, Precision};
use towers_tensor_cpu::{Cpu, SIMD_LEVELS};

/// The devices of all stages, those of the first replica first. Most replicas have one stage.
#[derive(Clone, Debug, PartialEq)]
enum StageDevices {
    /// This many stages on the CPU, with this many threads each.
    Cpu { stages: usize, threads: usize },
    /// One stage on each of these GPUs; stages with the same number share a GPU.
    Gpus(Vec<usize>),
}

/// Checks that [`open_devices`] will find the devices, without opening any. Returns their number of replicas.
///
/// # Errors
/// [`Error::Device`] if a device does not exist; [`towers_config::Error::Option`] for numbers out of range.
pub fn check_devices(options: &Devices, arithmetic: &Arithmetic) -> Result<usize> {
    let devices = match stage_devices(options, gpus::usable)? {
        StageDevices::Cpu { stages, .. } => {
            check_cpu(options, arithmetic.precision)?;
            stages
        }
        StageDevices::Gpus(gpus) => gpus.len(),
    };
    Ok(devices / options.stages())
}

/// Opens a device for each stage of each replica, those of the first replica first. On the CPU, threads are
/// divided evenly, with at least one each.
///
/// # Errors
/// As [`check_devices`], and the errors of a GPU's libraries.
pub fn open_devices(options: &Devices, arithmetic: &Arithmetic) -> Result<Vec<Device>> {
    match stage_devices(options, gpus::usable)? {
        StageDevices::Cpu { stages, threads } => {
            check_cpu(options, arithmetic.precision)?;
            let open = |_| match arithmetic.precision {
                Precision::Bf16 => {
                    Cpu::new(threads).with_bf16().ok_or_else(|| not_on_cpu(options, arithmetic.precision))
                }
                _ if arithmetic.no_winograd => Ok(Cpu::new(threads).without_winograd()),
                _ => Ok(Cpu::new(threads)),
            };
            (0..stages).map(|stage| open(stage).map(Device::from)).collect()
        }
        StageDevices::Gpus(numbers) => {
            numbers.into_iter().map(|gpu| gpus::open(gpu, options, arithmetic.precision)).collect()
        }
    }
}

/// Opens the first of the devices, for work that needs no replicas.
///
/// # Errors
/// As [`open_devices`].
pub fn open_device(options: &Devices, arithmetic: &Arithmetic) -> Result<Device> {
    let one = Devices { replicas: 1, ..options.clone() };
    let first = open_devices(&one, arithmetic)?.into_iter().next();
    first.ok_or_else(|| Error::Device("there is no device".into()))
}

/// The number of usable GPUs; 0 if there is none, or a library is missing.
pub fn count_gpus() -> usize {
    gpus::usable().map_or(0, |gpus| gpus.len())
}

/// The reason for not using a GPU of this machine where the choice is automatic: the driver or a library is
/// missing, too old or broken, or the GPU is too old. `None` if there is no GPU, or it is used.
pub fn unused_gpu(options: &Devices) -> Option<String> {
    if options.kind() != DeviceKind::Auto {
        return None;
    }
    gpus::unusable()
}

/// Refuses a `TOWERS_SIMD` that names no instruction set.
fn check_simd() -> Result<()> {
    let Some(name) = towers_tensor_cpu::unknown_simd_level() else { return Ok(()) };
    let accepted = format!("one of {}{}", SIMD_LEVELS.join(", "), hint(&name, SIMD_LEVELS));
    Err(Error::about("TOWERS_SIMD", format!("`{name}`"), accepted))
}

fn stage_devices(options: &Devices, list: impl FnOnce() -> Result<Vec<String>>) -> Result<StageDevices> {
    check_simd()?;
    let present = match options.kind() {
        DeviceKind::Cpu => None,
        DeviceKind::Cuda => Some(list()?),
        DeviceKind::Auto => list().ok(),
    };
    match present {
        Some(present) => Ok(StageDevices::Gpus(spread(options, &present)?)),
        None => on_cpu(options),
    }
}

/// The GPU of each replica.
fn spread(options: &Devices, present: &[String]) -> Result<Vec<usize>> {
    let wanted = options.gpus.clone().filter(|gpus| !gpus.is_empty()).unwrap_or_else(|| vec![0]);
    if let Some(&gpu) = wanted.iter().find(|number| **number >= present.len()) {
        return Err(gpus::missing(gpu, present));
    }
    let stages = options.stages();
    let replicas = match options.replicas {
        0 if wanted.len() > stages && !wanted.len().is_multiple_of(stages) => {
            let accepted = format!("a number of GPUs that pipelines of {stages} stages can share out");
            return Err(Error::option("devices.gpus", wanted.len(), accepted));
        }
        0 => (wanted.len() / stages).max(1),
        replicas => replicas,
    };
    Ok((0..replicas * stages).map(|replica| wanted[replica % wanted.len()]).collect())
}

fn on_cpu(options: &Devices) -> Result<StageDevices> {
    let stages = options.replicas.max(1) * options.stages();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    Ok(StageDevices::Cpu { stages, threads: (threads / stages).max(1) })
}

/// Refuses a precision that the CPU does not support.
fn check_cpu(options: &Devices, precision: Precision) -> Result<()> {
    let bf16 = precision == Precision::Bf16 && towers_tensor_cpu::bf16_level().is_some();
    if precision == Precision::Fp32 || bf16 { Ok(()) } else { Err(not_on_cpu(options, precision)) }
}

fn not_on_cpu(options: &Devices, precision: Precision) -> Error {
    Error::option("devices.precision", precision, accepted_on_cpu(unused_gpu(options)))
}

/// The precisions of the CPU. If there is a GPU that is not used, the user should mend that.
fn accepted_on_cpu(unused_gpu: Option<String>) -> String {
    let has_bf16 = towers_tensor_cpu::bf16_level().is_some();
    match unused_gpu {
        Some(why) => format!("{} without a GPU; {why}", if has_bf16 { "fp32 or bf16" } else { "fp32" }),
        None if has_bf16 => "fp32 or bf16 on the CPU; `towers devices` says why no GPU is used".into(),
        None => "fp32 on a processor without matrix units for bf16 (AMX); `towers devices` says why no GPU is used".into(),
    }
}

/// The output of `towers devices`: the devices, and the reasons for missing ones.
///
/// # Errors
/// [`towers_config::Error::Option`] if `TOWERS_SIMD` names no instruction set.
pub fn describe_devices() -> Result<Vec<String>> {
    check_simd()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bf16 = towers_tensor_cpu::bf16_level().map_or(String::new(), |level| format!(", bf16 by {level}"));
    let mut lines = vec![format!("cpu: {cores} cores, {}{bf16}", towers_tensor_cpu::simd_level())];
    lines.extend(gpus::describe());
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: Devices, gpus: usize) -> Result<StageDevices> {
        stage_devices(&options, || Ok(vec!["a GPU".to_owned(); gpus]))
    }

    fn options(gpus: &[usize], replicas: usize) -> Devices {
        let gpus = (!gpus.is_empty()).then(|| gpus.to_vec());
        Devices { device: DeviceKind::Cuda, gpus, replicas, ..Devices::default() }
    }

    #[test]
    fn replicas_go_where_they_are_asked_to() {
        for (gpus, replicas, expected) in [
            (&[][..], 0, &[0][..]),
            (&[2, 0], 0, &[2, 0]),
            (&[1, 1, 1], 0, &[1, 1, 1]),
            (&[0, 1], 5, &[0, 1, 0, 1, 0]),
            (&[0, 1, 2], 1, &[0]),
        ] {
            assert_eq!(plan(options(gpus, replicas), 3).unwrap(), StageDevices::Gpus(expected.to_vec()));
        }
    }

    #[test]
    fn stages_take_gpus_replica_by_replica() {
        for (gpus, replicas, stages, expected) in [
            (&[0, 1][..], 0, 2, &[0, 1][..]),
            (&[0, 1, 2, 3], 0, 2, &[0, 1, 2, 3]),
            (&[0], 0, 3, &[0, 0, 0]),
            (&[0, 1], 2, 2, &[0, 1, 0, 1]),
            (&[0, 1], 0, 3, &[0, 1, 0]),
        ] {
            let options = Devices { pipeline_stages: stages, ..options(gpus, replicas) };
            assert_eq!(plan(options, 4).unwrap(), StageDevices::Gpus(expected.to_vec()));
        }
        let uneven = Devices { pipeline_stages: 2, ..options(&[0, 1, 2], 0) };
        assert!(plan(uneven, 4).unwrap_err().to_string().contains("`devices.gpus` is 3"));
        let cpu = Devices { pipeline_stages: 2, replicas: 2, threads: 8, ..Devices::default() };
        assert_eq!(on_cpu(&cpu).unwrap(), StageDevices::Cpu { stages: 4, threads: 2 });
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn what_is_missing_is_named_beside_what_is_there() {
        let error = plan(options(&[0, 4], 0), 2).unwrap_err().to_string();
        assert_eq!(error, "there is no GPU 4; there are 0 (a GPU), 1 (a GPU)");
    }

    #[test]
    fn auto_takes_a_gpu_where_there_is_one() {
        let auto = Devices { threads: 4, replicas: 2, ..Devices::default() };
        assert_eq!(plan(auto.clone(), 1).unwrap(), StageDevices::Gpus(vec![0, 0]));
        let none = || Err(gpus::missing(0, &[]));
        assert_eq!(stage_devices(&auto, none).unwrap(), StageDevices::Cpu { stages: 2, threads: 2 });
        // GPUs that are named are wanted.
        let named = Devices { gpus: Some(vec![0]), ..auto };
        for wanted in [named, options(&[], 0)] {
            let error = stage_devices(&wanted, none).unwrap_err().to_string();
            assert_eq!(error, gpus::missing(0, &[]).to_string());
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn without_the_feature_gpus_are_refused() {
        for options in [options(&[], 0), options(&[0], 0)] {
            let error = open_devices(&options, &Arithmetic::default()).unwrap_err().to_string();
            assert!(error.contains("built without GPUs; build it with the feature `cuda`"), "{error}");
        }
        assert!(
            describe_devices()
                .unwrap()
                .iter()
                .any(|line| line.contains("cuda: none; this program was built"))
        );
    }

    /// Whoever asked for half precision wants the GPU, and hears what mends it.
    #[test]
    fn an_unused_gpu_is_named_where_the_cpu_refuses() {
        let accepted = accepted_on_cpu(Some("a GPU is there, but can't be used: mend it".into()));
        assert!(accepted.starts_with("fp32") && accepted.ends_with("can't be used: mend it"), "{accepted}");
        assert!(accepted.contains(" without a GPU; ") && !accepted.contains("AMX"), "{accepted}");
        assert!(accepted_on_cpu(None).contains("`towers devices` says why"));
    }

    #[test]
    fn the_cpu_computes_in_fp32_and_where_it_can_in_bf16() {
        if gpus::usable().is_ok() {
            println!("SKIPPED: cpu: a GPU is there, and takes its place");
            return;
        }
        let none = || Err(gpus::missing(0, &[]));
        for precision in Precision::ALL {
            let (devices, arithmetic) =
                (Devices::default(), Arithmetic { precision, ..Arithmetic::default() });
            let on_cpu = stage_devices(&devices, none).and_then(|_| open_devices(&devices, &arithmetic));
            let expected = match precision {
                Precision::Fp32 => None,
                Precision::Bf16 if towers_tensor_cpu::bf16_level().is_some() => None,
                // An error does not suggest a precision that would be refused.
                _ if towers_tensor_cpu::bf16_level().is_none() => {
                    Some("but must be fp32 on a processor without")
                }
                _ => Some("but must be fp32 or bf16 on the CPU"),
            };
            match (on_cpu, expected) {
                (Ok(devices), None) => assert_eq!(devices[0].precision(), precision),
                // A machine with a GPU that is not used says so.
                (Err(error), Some(_)) if unused_gpu(&Devices::default()).is_some() => {
                    assert!(error.to_string().contains("without a GPU"), "{error}");
                }
                (Err(error), Some(expected)) => {
                    let begins = format!("`devices.precision` is {precision}, {expected}");
                    assert!(error.to_string().starts_with(&begins), "{error}");
                }
                (other, expected) => panic!("{other:?} instead of {expected:?}"),
            }
            assert!(plan(devices, 1).is_ok());
        }
    }
}
