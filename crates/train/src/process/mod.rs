mod cores;
mod device;
mod facts;
mod recovery;
mod transport;

use crate::run::PreparedRun;
use crate::{Config, Error, Observer, Outcome, Result, Training, check_devices, count_gpus, open_devices};
use recovery::{Kept, Next};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use towers_config::Devices;
use towers_options::{Message, message};
use towers_parallel::{Replica, Stage};
use towers_program::Device;
use towers_rendezvous::{Agreement, Place, ProcessGroup, Source, connect, discover, variable};
use transport::Transport;

/// This process, as one of several that train together: each runs one replica or more.
///
/// All processes call the same functions in the same order. Only the first one has observers, writes files
/// and prints messages.
pub struct Process {
    place: Place,
    transport: Transport,
    /// The connections to the other processes, unless MPI has them.
    group: Option<ProcessGroup>,
    /// The number of replicas of each process, once they are connected.
    replicas: Vec<usize>,
    /// Whether a launcher starts lost processes again.
    comes_back: bool,
}

impl Process {
    /// The number of processes.
    pub fn world(&self) -> usize {
        self.place.world
    }

    /// Finds the processes that the launcher named in the environment; `None` if this one was started alone.
    ///
    /// On GPUs they are joined by NCCL; by MPI if that started them and is built in.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if the environment is contradictory, or if the address of the rendezvous is missing;
    /// [`Error::NoTransport`] if nothing in this build joins processes on such devices.
    pub fn join(devices: &Devices) -> Result<Option<Process>> {
        match discover(variable)? {
            Some(place) if place.world > 1 => {
                let transport = Transport::choose(&place, devices)?;
                Ok(Some(Process { place, transport, group: None, replicas: Vec::new(), comes_back: false }))
            }
            _ => Ok(None),
        }
    }

    /// The same, under a launcher that starts all processes again after the loss of one. Then the others save the
    /// run at the end of the epoch, and end with [`End::Incomplete`](crate::End::Incomplete).
    pub fn comes_back(self, comes_back: bool) -> Self {
        Process { comes_back, ..self }
    }

    /// Lets this process tell at once what keeps it from the others, while it still tries to reach them.
    pub fn telling(mut self, tell: fn(&str)) -> Self {
        self.transport.telling(tell);
        self
    }

    /// Whether this process writes the files and prints messages.
    pub fn is_first(&self) -> bool {
        self.place.is_first()
    }

    /// Connects the processes, which tell each other how many replicas they have: one for each of their
    /// devices. Returns the number of all replicas. Only the first call connects.
    ///
    /// # Errors
    /// If a device is missing, or another process did not come in time.
    pub fn connect(&mut self, config: &Config) -> Result<usize> {
        if self.replicas.is_empty() {
            let own = check_devices(&self.devices(config)?, &config.training.arithmetic)?;
            self.replicas = match &self.transport {
                Transport::Mpi { mpi, .. } => mpi.replicas(own)?,
                Transport::Nccl { settings, .. } => {
                    self.group.insert(connect(&self.place, settings)?).replicas(own)?
                }
            };
        }
        Ok(self.replicas.iter().sum())
    }

    /// Whether no launcher watches all processes of the job together. Kubernetes restarts each process, or
    /// counts it as done, by its own exit status; torchrun does so for the processes of each machine. Other
    /// launchers end all processes if one fails, and would not restart one that is done.
    pub fn is_on_its_own(&self) -> bool {
        !matches!(self.place.source, Source::Launch | Source::OpenMpi | Source::Mpich | Source::Slurm)
    }

    /// Whether any process was restarted. Call [`connect`](Process::connect) first. Each passes the information of its launcher; torchrun may call the
    /// processes of a new machine not restarted. Only the first process gets the common answer; the others
    /// get their own one, and so do all with MPI.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if another process did not answer in time.
    pub fn any_restarted(&mut self, restarted: bool) -> Result<bool> {
        let Some(group) = &mut self.group else { return Ok(restarted) };
        let said = group.gather(&[u8::from(restarted)])?;
        Ok(restarted || said.contains(&vec![u8::from(true)]))
    }

    /// The checkpoint that the first process resumes from, by its name. Call
    /// [`connect`](Process::connect) first. With MPI, each process takes the one that it finds
    /// itself.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if the first process has ended.
    pub fn common_checkpoint(&mut self, own: Option<String>) -> Result<Option<String>> {
        let Some(group) = &mut self.group else { return Ok(own) };
        let name = own.unwrap_or_default();
        let name = group.broadcast(name.as_bytes())?;
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    /// The folder of the run, which the first process names, if another one may have to take it over. All call it
    /// before [`train`](Process::train).
    ///
    /// # Errors
    /// If the first process has ended.
    pub fn share_folder(&mut self, own: Option<&Path>) -> Result<Option<PathBuf>> {
        let Some(mpi) = self.transport.fault_tolerant() else { return Ok(None) };
        let name = mpi.broadcast_bytes(own.unwrap_or(Path::new("")).as_os_str().as_encoded_bytes(), 0)?;
        Ok(Some(path_of(name)))
    }

    /// As [`Training::run`], with this process's replicas. Devices and observers of the training are ignored.
    ///
    /// The devices are all GPUs of the machine, or the one of this process's local rank if the launcher started
    /// several processes there; without GPUs, shares of the CPU's threads.
    ///
    /// The first process calls `observers` to make them. If MPI can continue without a lost process, so does the
    /// run: the others share out its work, and repeat the step that it has broken off. If the first process is
    /// lost, the next one takes over its files, and makes its own observers.
    ///
    /// # Errors
    /// As [`Training::run`]; and if another process failed, did not answer in time, or was started
    /// with other data or another configuration.
    pub fn train(
        mut self,
        mut training: Training<'_>,
        mut observers: impl FnMut() -> towers_callbacks::Result<Vec<Box<dyn Observer>>>,
    ) -> Result<Outcome> {
        let network = training.network()?;
        let (config, resume, stop) = (training.config, training.resume, training.stop.clone());
        let world = self.connect(config)?;
        let devices = self.open(config)?;
        let mut own = if self.is_first() { observers()? } else { Vec::new() };
        let mut run = PreparedRun::prepare(training, network, world, &devices, &mut own)?;
        let facts = facts::facts(&run, &devices[0]);
        let (mut kept, mut warning) = (None::<Box<Kept>>, None);
        loop {
            if self.is_first() && own.is_empty() {
                own = observers()?;
                run.snapshot_for(&own);
            }
            let own = Mutex::new(Some(&mut own[..]));
            let (from, end) = match &kept {
                Some(kept) => (Some(&kept.resume), kept.end.clone()),
                None => (resume, None),
            };
            let tolerant = self.transport.fault_tolerant().is_some();
            let incomplete = self.comes_back && warning.is_some();
            let last = Mutex::new(None);
            let body = |replica: Replica| {
                let mut started = run.start(from, replica, Stage::whole(), &own, &stop)?;
                (started.end, started.incomplete) = (end.clone(), incomplete);
                started.warnings.extend(warning.clone().map(Message::from));
                let fitted = started.fit();
                if tolerant && let Ok(mut last) = last.lock() {
                    let (resume, end) = started.keep()?;
                    *last = Some(Box::new(Kept { resume, end, finished: fitted.is_ok() }));
                }
                fitted
            };
            let facts = facts.clone().with("a first step of", from.map_or(0, |from| from.state.step));
            let ran = self.transport.run(&self.place, self.group.take(), &devices, &facts, body);
            let last = last.into_inner().ok().flatten();
            let (lost, mpi) = match (ran, self.transport.fault_tolerant()) {
                (Err(Error::Parallel(towers_parallel::Error::Lost)), Some(mpi)) => (last, mpi),
                (ran, _) => return ran,
            };
            match recovery::regroup(mpi, resume, lost.or(kept))? {
                Next::Done(outcome) => {
                    // One more may be lost.
                    let _ = mpi.finish();
                    return Ok(*outcome);
                }
                Next::Continue { kept: next, warning: about } => (kept, warning) = (next, Some(about)),
            }
            self.place.rank = mpi.rank();
        }
    }

    /// Runs `body` for each replica of this process, together with those of the others. `facts` and the
    /// arithmetic of `config` must agree across all processes. Returns the result of the first replica.
    ///
    /// # Errors
    /// Those of `body`; and if another process failed, did not answer in time, or has other facts.
    pub fn run<T: Send>(
        mut self,
        config: &Config,
        facts: &Agreement,
        body: impl Fn(Replica) -> Result<T> + Sync,
    ) -> Result<T> {
        self.connect(config)?;
        let devices = self.open(config)?;
        let facts = facts::with_device_facts(facts.clone(), config);
        self.transport.run(&self.place, self.group, &devices, &facts, body)
    }

    /// The devices of this process.
    fn devices(&self, config: &Config) -> Result<Devices> {
        device::share(config, &self.place, count_gpus())
    }

    /// Opens them, one for each of its replicas.
    fn open(&self, config: &Config) -> Result<Vec<Device>> {
        let devices = open_devices(&self.devices(config)?, &config.training.arithmetic)?;
        let expected = self.replicas[self.place.rank];
        if devices.is_empty() || devices.len() != expected {
            let count = devices.len();
            return Err(Error::Device(message!("there are {count} devices, not {expected} as before")));
        }
        Ok(devices)
    }
}

/// The path with these bytes, which need not be UTF-8.
#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

/// MPI is used on Unix only.
#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the check, the process meets the others. It has no address for that here.
    #[test]
    fn the_images_of_the_data_count_and_not_those_of_the_options() {
        // The network can't take images of 8x8.
        let mut config = crate::recipe("keras-cnn").unwrap();
        config.training.data.image_size = Some(towers_trained::ImageSize { height: 8, width: 8 });
        config.placement.devices.device = towers_config::DeviceKind::Cpu;
        let settings = towers_rendezvous::Settings::default();
        let transport = Transport::Nccl { settings, timeout: std::time::Duration::from_secs(1) };
        let (place, replicas) = (place(0, 1), Vec::new());
        let process = Process { place, transport, group: None, replicas, comes_back: false };
        let data = towers_cifar::synthetic(1, 16, 8);
        let trained = process.train(Training::new(&config, data), || Ok(Vec::new()));
        let error = trained.err().unwrap().to_string();
        assert!(error.starts_with("MASTER_ADDR is not set"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn the_name_of_a_folder_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt as _;
        let name = std::ffi::OsStr::from_bytes(b"run-\xff");
        assert_eq!(path_of(name.as_encoded_bytes().to_vec()), Path::new(name));
    }

    /// The process of rank 5 of 8.
    pub(super) fn place(local_rank: usize, local_world: usize) -> Place {
        let one_device = local_world > 1;
        Place { local_rank, local_world, one_device, ..Place::new(Source::OpenMpi, 5, 8) }
    }
}
