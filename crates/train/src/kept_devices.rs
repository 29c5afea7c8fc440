//! The devices of a resumed run: those that it was to have, as far as this machine has them.

use crate::{Result, count_gpus};
use std::path::PathBuf;
use towers_config::{DeviceKind, Devices};
use towers_options::{Message, message};
use towers_rendezvous::{discover, variable};

/// The devices of this machine.
#[derive(Clone, Copy, Debug)]
struct Here {
    gpus: usize,
    cores: usize,
    /// Whether a launcher has started several processes, which share them.
    is_shared: bool,
}

/// The devices on which a run that had the `saved` ones resumes here, and the key of each option that can't be kept,
/// with a sentence.
///
/// # Errors
/// [`Error::Rendezvous`](crate::Error::Rendezvous) if a launcher's variables contradict each other.
pub fn kept_devices(saved: &Devices) -> Result<(Devices, Vec<(&'static str, Message)>)> {
    let here = Here {
        // Libraries of GPUs are opened for a run on GPUs alone.
        gpus: if saved.kind() == DeviceKind::Cuda { count_gpus() } else { 0 },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        is_shared: discover(variable)?.is_some_and(|place| place.world > 1),
    };
    Ok(kept(saved, here))
}

fn kept(saved: &Devices, here: Here) -> (Devices, Vec<(&'static str, Message)>) {
    let (mut devices, mut changes) = (saved.clone(), Vec::new());
    let mut change = |key, before: String, now: &str, why: &str| {
        let told = message!("the run had ", [key], " {before}, and continues with {now}: {why}");
        changes.push((key, told));
    };
    let Here { gpus, cores, is_shared } = here;
    let has = format!("this machine has {gpus} GPU{}", if gpus == 1 { "" } else { "s" });
    match &saved.gpus {
        // Older runs have saved both.
        _ if saved.device == DeviceKind::Cpu => devices.gpus = None,
        Some(asked) if asked.iter().any(|gpu| *gpu >= gpus) => {
            let mut left: Vec<usize> = asked.iter().copied().filter(|gpu| *gpu < gpus).collect();
            if left.len() > saved.stages() {
                left.truncate(left.len() / saved.stages() * saved.stages());
            }
            let other = if gpus > 0 { "GPU 0" } else { "the CPU" };
            let now = if left.is_empty() { other.to_owned() } else { ids(&left) };
            change("devices.gpus", ids(asked), &now, &has);
            if left.is_empty() {
                devices.device = DeviceKind::Auto;
            }
            devices.gpus = Some(left).filter(|left| !left.is_empty());
        }
        None if saved.device == DeviceKind::Cuda && gpus == 0 => {
            change("devices.device", "cuda".to_owned(), "the CPU", &has);
            devices.device = DeviceKind::Auto;
        }
        _ => {}
    }
    if saved.threads > cores {
        let (now, why) = (cores.to_string(), format!("this machine has {cores}"));
        change("devices.threads", saved.threads.to_string(), &now, &why);
        devices.threads = 0;
    }
    if is_shared && saved.stages() > 1 {
        let why = "the replicas of several processes have no stages";
        change("devices.pipeline_stages", saved.pipeline_stages.to_string(), "whole replicas", why);
        (devices.pipeline_stages, devices.split_at) = (0, Vec::new());
    }
    // A name alone is looked for in the system's folders.
    let is_missing = |library: &&PathBuf| library.components().count() > 1 && !library.exists();
    if let Some(library) = saved.mpi_library.as_ref().filter(is_missing) {
        let before = library.display().to_string();
        change("devices.mpi_library", before, "the one that fits the launcher", "the file is not here");
        devices.mpi_library = None;
    }
    (devices, changes)
}

fn ids(gpus: &[usize]) -> String {
    gpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { gpus: 2, cores: 4, is_shared: false };

    fn devices(gpus: &[usize], pipeline_stages: usize) -> Devices {
        let (device, gpus) = (DeviceKind::Cuda, Some(gpus.to_vec()).filter(|gpus| !gpus.is_empty()));
        let (split_at, collective_timeout) = (vec!["conv".to_owned()], 17);
        Devices {
            device,
            gpus,
            pipeline_stages,
            split_at,
            collective_timeout,
            mixed_devices: true,
            ..Devices::default()
        }
    }

    #[test]
    fn what_is_here_is_kept() {
        let cpu = Devices { device: DeviceKind::Cpu, replicas: 3, threads: 4, ..Devices::default() };
        let mpi = Devices { mpi_library: Some("libmpi.so.40".into()), ..cpu.clone() };
        for saved in [devices(&[0, 1], 2), devices(&[1], 1), devices(&[], 2), cpu, mpi] {
            assert_eq!(kept(&saved, HERE), (saved, Vec::new()));
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let has = "this machine has 2 GPUs";
        for (gpus, stages, left, now) in [
            (&[0, 1, 2][..], 0, &[0, 1][..], "0,1"),
            (&[0, 1, 2, 3], 2, &[0, 1], "0,1"),
            (&[0, 0, 1, 2], 2, &[0, 0], "0,0"),
            (&[0, 3], 2, &[0], "0"),
            (&[4, 5], 2, &[], "GPU 0"),
        ] {
            let saved = devices(gpus, stages);
            let (found, changes) = kept(&saved, HERE);
            assert_eq!(found.gpus.unwrap_or_default(), left);
            let says = format!("the run had `devices.gpus` {}, and continues with {now}: {has}", ids(gpus));
            assert_eq!((changes.len(), changes[0].1.to_string()), (1, says));
            assert_eq!((found.pipeline_stages, found.collective_timeout), (stages, 17));
        }
        let nothing = Here { gpus: 0, cores: 2, is_shared: true };
        let saved = Devices { threads: 3, mpi_library: Some("/no/libmpi.so".into()), ..devices(&[], 2) };
        let (found, changes) = kept(&saved, nothing);
        assert_eq!((found.device, found.threads, found.stages()), (DeviceKind::Auto, 0, 1));
        assert!(found.split_at.is_empty() && found.mpi_library.is_none() && found.mixed_devices);
        let had = ["device` cuda", "threads` 3", "pipeline_stages` 2", "mpi_library` /no/libmpi.so"];
        let says = |(change, had): (&(&str, Message), &str)| change.1.to_string().contains(had);
        assert!(changes.len() == 4 && changes.iter().zip(had).all(says), "{changes:?}");
    }
}
