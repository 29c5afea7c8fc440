use crate::mpi::{Mpi, MpiOptions};
use crate::{Error, Result, gpus};
use std::time::Duration;
use towers_config::{DeviceKind, Devices};
use towers_parallel::Replica;
use towers_program::Device;
use towers_rendezvous::{Agreement, Place, ProcessGroup, Settings, Source, connect, variable};

/// The transport between the processes of a run.
pub(super) enum Transport {
    /// NCCL; its id is exchanged by a rendezvous.
    Nccl {
        /// The settings of the rendezvous.
        settings: Settings,
        /// The longest wait for other processes after it.
        timeout: Duration,
    },
    /// MPI.
    Mpi {
        mpi: Mpi,
        /// NCCL adds up; MPI exchanges its id, and ends the processes together.
        nccl: bool,
        timeout: Duration,
    },
}

impl Transport {
    /// NCCL if this process has a GPU; MPI if that started it.
    pub(super) fn choose(place: &Place, devices: &Devices) -> Result<Transport> {
        let timeout = devices.patience();
        let settings = Settings::discover(variable)?;
        if matches!(place.source, Source::OpenMpi | Source::Mpich | Source::Slurm) {
            let nccl = devices.device != DeviceKind::Cpu && gpus::usable().is_ok() && gpus::nccl().is_ok();
            // A secret for the rendezvous means that MPI is not wanted.
            if !nccl || settings.secret.is_none() {
                let library = devices.mpi_library.clone();
                let options =
                    MpiOptions { timeout, world: Some(place.world), library, ..MpiOptions::default() };
                return Ok(Transport::Mpi { mpi: Mpi::start(options)?, nccl, timeout });
            }
        }
        let Place { world, source, .. } = place;
        let unable =
            |why: String| Error::NoTransport(format!("{source} started {world} processes, but {why}"));
        if devices.device == DeviceKind::Cpu {
            return Err(unable(ON_CPUS.to_owned()));
        }
        match (gpus::usable(), devices.kind()) {
            (Ok(_), _) => {}
            (Err(why), kind) => {
                return Err(unable(match kind {
                    DeviceKind::Cuda => format!("no GPU can be used: {why}"),
                    _ => format!("{ON_CPUS} (no GPU is used: {why})"),
                }));
            }
        }
        gpus::nccl().map_err(|why| unable(format!("NCCL can't join them: {why}")))?;
        settings.check(place)?;
        Ok(Transport::Nccl { settings, timeout })
    }

    /// Lets the rendezvous tell its obstacles.
    pub(super) fn telling(&mut self, tell: fn(&str)) {
        if let Transport::Nccl { settings, .. } = self {
            settings.tell = tell;
        }
    }

    /// MPI, if the run continues without processes that are lost.
    pub(super) fn fault_tolerant(&mut self) -> Option<&mut Mpi> {
        match self {
            Transport::Mpi { mpi, nccl: false, .. } if mpi.is_fault_tolerant() => Some(mpi),
            _ => None,
        }
    }

    /// Runs `body` for each replica of this process, together with those of the others, whose facts must
    /// agree. Returns the result of the first replica.
    pub(super) fn run<T, F>(
        &self,
        place: &Place,
        group: Option<ProcessGroup>,
        devices: &[Device],
        facts: &Agreement,
        body: F,
    ) -> Result<T>
    where
        T: Send,
        F: Fn(Replica) -> Result<T> + Sync,
    {
        let results = match self {
            Transport::Nccl { settings, timeout } => {
                let group = group.map_or_else(|| connect(place, settings), Ok)?;
                gpus::run(group, facts, *timeout, devices, body)
            }
            Transport::Mpi { mpi, nccl, timeout } => {
                mpi.agree(&facts.clone().with("sums by", if *nccl { "NCCL" } else { "MPI" }))?;
                if *nccl { gpus::run_by_mpi(mpi, *timeout, devices, body) } else { mpi.run(devices, body) }
            }
        };
        results?.into_iter().next().ok_or_else(|| Error::Device("there is no device".into()))
    }
}

/// The remedy for processes without GPUs that MPI did not start.
const ON_CPUS: &str = "on CPUs MPI joins them: start them with `towers launch` or mpirun";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::place;

    fn refused(place: &Place, device: DeviceKind) -> String {
        let devices = Devices { device, ..Devices::default() };
        Transport::choose(place, &devices).err().unwrap().to_string()
    }

    #[test]
    fn processes_on_cpus_are_told_what_joins_them() {
        let launched = Place { source: Source::Torchrun, ..place(0, 2) };
        let error = refused(&launched, DeviceKind::Cpu);
        assert!(error.starts_with("torchrun started 8 processes, but on CPUs "), "{error}");
        assert!(error.contains("start them with `towers launch` or mpirun"), "{error}");
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn without_the_feature_processes_of_mpi_are_refused() {
        for source in [Source::OpenMpi, Source::Mpich, Source::Slurm] {
            let error = refused(&Place { source, ..place(0, 2) }, DeviceKind::Cpu);
            assert!(error.contains("built without MPI; build it with the feature `mpi`"), "{error}");
        }
    }

    #[test]
    fn processes_that_find_no_gpu_are_told_why() {
        if gpus::usable().is_ok() {
            println!("SKIPPED: what processes without a GPU are told: there is one");
            return;
        }
        let launched = Place { source: Source::Launch, ..place(0, 2) };
        let error = refused(&launched, DeviceKind::Auto);
        assert!(error.contains("but on CPUs ") && error.contains(" (no GPU is used: "), "{error}");
        assert!(!refused(&launched, DeviceKind::Cuda).contains("on CPUs "));
        for device in [DeviceKind::Auto, DeviceKind::Cuda] {
            let error = refused(&launched, device);
            assert!(!error.contains("--device cpu"), "that does not join them: {error}");
        }
    }
}
