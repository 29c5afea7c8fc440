use super::cores;
use crate::devices::count_gpus;
use crate::{Arithmetic, Config, DeviceKind, Devices, Error, Result, open_devices};
use parallel::cluster::{Place, Source};
use program::Device;

/// Opens this process's device.
pub(super) fn open(config: &Config, place: &Place) -> Result<Device> {
    let deterministic = config.training.arithmetic.deterministic || config.repeats();
    let arithmetic = Arithmetic { deterministic, ..config.training.arithmetic };
    let mut devices = open_devices(&share(config, place, count_gpus())?, &arithmetic)?;
    devices.pop().ok_or_else(|| Error::Device("there is no device to train on".into()))
}

/// This process's part of the machine's devices; `present` is the number of GPUs that it sees.
fn share(config: &Config, place: &Place, present: usize) -> Result<Devices> {
    let options = &config.placement.devices;
    if options.stages() > 1 {
        let accepted = format!("left out: each of {} processes has one device", place.world);
        let value = options.stages().to_string();
        return Err(Error::Option { option: "`devices.pipeline_stages`", value, accepted });
    }
    if options.replicas > 1 {
        let accepted = format!("left out: {} processes have one replica each", place.world);
        return Err(Error::Option {
            option: "`devices.replicas`",
            value: options.replicas.to_string(),
            accepted,
        });
    }
    let threads = match options.threads {
        0 => cores::threads(place),
        all => (all / place.local_world).max(1),
    };
    let gpu = match options.gpus.as_deref() {
        Some(gpus @ [_, ..]) => gpus[place.local_rank % gpus.len()],
        // Launchers of clusters may show each process only its GPU. `towers launch` shows all of them to all
        // processes.
        _ if present == 1 && place.source != Source::Launch => 0,
        _ => place.local_rank,
    };
    Ok(Devices {
        gpus: (options.device != DeviceKind::Cpu).then(|| vec![gpu]),
        replicas: 1,
        threads,
        ..options.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::place;

    #[test]
    fn processes_of_a_machine_share_its_devices() {
        let mut config = crate::recipe("quick").unwrap();
        config.placement.devices.threads = 6;
        let shared = share(&config, &place(1, 4), 4).unwrap();
        assert_eq!((shared.threads, shared.gpus, shared.replicas), (1, Some(vec![1]), 1));
        config.placement.devices.gpus = Some(vec![4, 7]);
        assert_eq!(share(&config, &place(1, 2), 8).unwrap().gpus, Some(vec![7]));
        config.placement.devices.device = DeviceKind::Cpu;
        let shared = share(&config, &place(1, 2), 0).unwrap();
        assert_eq!((shared.threads, shared.gpus), (3, None));
    }

    /// As under `srun --gpus-per-task=1`.
    #[test]
    fn the_only_gpu_that_a_process_sees_is_its_own() {
        let config = crate::recipe("quick").unwrap();
        assert_eq!(share(&config, &place(3, 4), 1).unwrap().gpus, Some(vec![0]));
        let launched = Place { source: Source::Launch, ..place(3, 4) };
        assert_eq!(share(&config, &launched, 1).unwrap().gpus, Some(vec![3]));
    }

    #[test]
    fn a_process_has_one_replica() {
        let mut config = crate::recipe("quick").unwrap();
        config.placement.devices.replicas = 2;
        let error = share(&config, &place(0, 2), 0).unwrap_err().to_string();
        assert!(error.contains("8 processes have one replica each"), "{error}");
    }
}
