use super::cores;
use crate::{Config, Error, Result};
use towers_config::{DeviceKind, Devices};
use towers_rendezvous::{Place, Source};

/// This process's part of the machine's devices; `present` is the number of GPUs that it sees.
pub(super) fn share(config: &Config, place: &Place, present: usize) -> Result<Devices> {
    let options = &config.placement.devices;
    if options.stages() > 1 {
        let accepted = format!("left out: the replicas of {} processes have no stages", place.world);
        return Err(Error::option("devices.pipeline_stages", options.stages(), accepted));
    }
    let threads = match options.threads {
        0 => cores::threads(place),
        all => (all / place.local_world).max(1),
    };
    let on_gpus = match options.kind() {
        DeviceKind::Cpu => false,
        DeviceKind::Cuda => true,
        DeviceKind::Auto => present > 0,
    };
    let gpus = on_gpus.then(|| gpus_of(options.gpus.as_deref(), place, present));
    let most = gpus.as_ref().map_or(usize::MAX, Vec::len);
    if options.replicas > most {
        let accepted = format!("at most {most}, one on each GPU");
        return Err(Error::option("devices.replicas", options.replicas, accepted));
    }
    Ok(Devices { gpus, threads, ..options.clone() })
}

/// The GPUs of this process.
fn gpus_of(chosen: Option<&[usize]>, place: &Place, present: usize) -> Vec<usize> {
    match chosen {
        Some(gpus @ [_, ..]) if place.one_device => vec![gpus[place.local_rank % gpus.len()]],
        Some(gpus @ [_, ..]) => gpus.to_vec(),
        // Launchers of clusters may show each process only its GPU. `towers launch` shows all of them to all
        // processes.
        _ if place.one_device && present == 1 && place.source != Source::Launch => vec![0],
        _ if place.one_device => vec![place.local_rank],
        _ => (0..present.max(1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::place;

    fn config() -> Config {
        crate::recipe("quick").unwrap()
    }

    fn gpus(config: &Config, place: &Place, present: usize) -> Option<Vec<usize>> {
        share(config, place, present).unwrap().gpus
    }

    #[test]
    fn processes_of_a_machine_share_its_devices() {
        let mut config = config();
        config.placement.devices.threads = 6;
        let shared = share(&config, &place(1, 4), 4).unwrap();
        assert_eq!((shared.threads, shared.gpus, shared.replicas), (1, Some(vec![1]), 0));
        config.placement.devices.gpus = Some(vec![4, 7]);
        assert_eq!(gpus(&config, &place(1, 2), 8), Some(vec![7]));
        assert_eq!(gpus(&config, &place(1, 2), 0), Some(vec![7]), "they are wanted, and reported as missing");
        config.placement.devices.device = DeviceKind::Cpu;
        let shared = share(&config, &place(1, 2), 0).unwrap();
        assert_eq!((shared.threads, shared.gpus), (3, None));
    }

    /// As under `srun --gpus-per-task=1`.
    #[test]
    fn the_only_gpu_that_a_process_sees_is_its_own() {
        assert_eq!(gpus(&config(), &place(3, 4), 1), Some(vec![0]));
        let launched = Place { source: Source::Launch, ..place(3, 4) };
        assert_eq!(gpus(&config(), &launched, 1), Some(vec![3]));
    }

    /// As under `TF_CONFIG`, `mpirun --map-by node`, or `PyTorchJob`.
    #[test]
    fn the_only_process_of_a_machine_takes_all_its_gpus() {
        let (mut config, alone) = (config(), place(0, 1));
        assert_eq!(gpus(&config, &alone, 4), Some(vec![0, 1, 2, 3]));
        assert_eq!(gpus(&config, &alone, 0), None);
        let one = Place { one_device: true, ..alone.clone() };
        assert_eq!(gpus(&config, &one, 4), Some(vec![0]));
        config.placement.devices.gpus = Some(vec![1, 3]);
        assert_eq!(gpus(&config, &alone, 4), Some(vec![1, 3]));
    }

    #[test]
    fn a_process_may_have_several_replicas() {
        let mut config = config();
        config.placement.devices.replicas = 2;
        assert_eq!(share(&config, &place(0, 2), 0).unwrap().replicas, 2);
        let error = share(&config, &place(0, 2), 2).unwrap_err().to_string();
        assert!(error.contains("`devices.replicas` is 2, but must be at most 1, one on each GPU"), "{error}");
    }
}
