use crate::fit::{Observers, Whole};
use crate::{Config, DeviceKind, DeviceOptions, Error, Outcome, Result, Resume, StopFlag, open_devices};
use cifar::Dataset;
use parallel::cluster::{Place, discover_here};
use parallel::{Replica, Stage};
use std::time::Duration;
use tensor::Device;

/// What joins the processes of a run.
#[cfg(feature = "mpi")]
type Transport = parallel::Mpi;

/// Nothing in this build does.
#[cfg(not(feature = "mpi"))]
enum Transport {}

/// This process, as one of several that train together: each runs one replica.
///
/// All processes call the same functions in the same order. The first one alone has observers, so it alone writes files and
/// talks to people.
pub struct Process {
    place: Place,
    transport: Transport,
}

impl Process {
    /// Joins the processes that the launcher named in the environment; `None` where this one was started alone.
    ///
    /// # Errors
    /// [`Error::Parallel`] if the environment makes no sense, if nothing in this build joins processes, or if not all of them
    /// come within the time-out, which is the longest that a process waits for others ever after.
    pub fn join(timeout: Duration) -> Result<Option<Process>> {
        match discover_here()? {
            Some(place) if place.world > 1 => {
                let transport = connect(&place, timeout)?;
                Ok(Some(Process { place, transport }))
            }
            _ => Ok(None),
        }
    }

    /// Whether this process writes the files and talks to people.
    pub fn is_first(&self) -> bool {
        self.place.is_first()
    }

    /// How many processes there are, and so replicas.
    pub fn world(&self) -> usize {
        self.place.world
    }

    /// As [`train`](crate::train()), with this process's replica.
    ///
    /// It has the GPU of its number on its machine, or a share of the CPU's threads.
    ///
    /// # Errors
    /// As [`train`](crate::train()); and if another process failed, did not come in time, or was started with other data or another
    /// configuration.
    pub fn train(
        self,
        config: &Config,
        data: Dataset,
        resume: Option<&Resume>,
        observers: Observers<'_>,
        stop: &StopFlag,
    ) -> Result<Outcome> {
        let device = open(config, &self.place)?;
        let run = Whole::prepare(config, data, resume, self.world(), &device)?;
        let observers = if self.is_first() { observers } else { Default::default() };
        run_on(self.transport, &run, device, |replica| run.stage(replica, Stage::whole(), observers, stop))
    }
}

/// This process's device.
fn open(config: &Config, place: &Place) -> Result<Device> {
    let mut devices = open_devices(&share(config, place)?)?;
    devices.pop().ok_or_else(|| Error::Device("there is no device to train on".into()))
}

/// What of the machine's devices is this process's.
fn share(config: &Config, place: &Place) -> Result<DeviceOptions> {
    let options = &config.devices;
    if options.stages() > 1 {
        let accepted = format!("left out: each of {} processes has one device", place.world);
        let value = options.stages().to_string();
        return Err(Error::Option { option: "--pipeline-stages", value, accepted });
    }
    if options.replicas > 1 {
        let accepted = format!("left out: {} processes have one tower each", place.world);
        return Err(Error::Option { option: "--replicas", value: options.replicas.to_string(), accepted });
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    let gpu = match options.gpus.as_deref() {
        Some(gpus @ [_, ..]) => gpus[place.local_rank % gpus.len()],
        _ => place.local_rank,
    };
    Ok(DeviceOptions {
        gpus: (options.device != DeviceKind::Cpu).then(|| vec![gpu]),
        replicas: 1,
        threads: (threads / place.local_world).max(1),
        deterministic: options.deterministic || config.repeats(),
        ..options.clone()
    })
}

#[cfg(feature = "mpi")]
fn connect(place: &Place, timeout: Duration) -> Result<Transport> {
    use parallel::cluster::Source;
    if !matches!(place.source, Source::OpenMpi | Source::Mpich | Source::Slurm) {
        return Err(without_transport(place, "they are joined by MPI: start them with mpirun or srun"));
    }
    Ok(parallel::Mpi::start(parallel::MpiOptions::default().timeout(timeout).world(place.world))?)
}

#[cfg(not(feature = "mpi"))]
fn connect(place: &Place, _: Duration) -> Result<Transport> {
    let mend = "this build can't join them: build it with `--features mpi`, or leave the launcher out and \
                train with --replicas or --gpus in one process";
    Err(without_transport(place, mend))
}

fn without_transport(place: &Place, mend: &str) -> Error {
    let Place { world, source, .. } = place;
    parallel::Error::NoTransport(format!("{source} started {world} processes, but {mend}")).into()
}

#[cfg(feature = "mpi")]
fn run_on<F>(transport: Transport, run: &Whole<'_>, device: Device, body: F) -> Result<Outcome>
where
    F: FnOnce(Replica) -> Result<Outcome>,
{
    transport.agree(&facts(run)?)?;
    transport.run(device, body)
}

#[cfg(not(feature = "mpi"))]
fn run_on<F>(transport: Transport, _: &Whole<'_>, _: Device, _: F) -> Result<Outcome>
where
    F: FnOnce(Replica) -> Result<Outcome>,
{
    match transport {}
}

/// What must be the same in all processes: the configuration but for paths and devices, the network, the data, and where the
/// run goes on.
#[cfg(feature = "mpi")]
fn facts(run: &Whole<'_>) -> Result<parallel::Facts> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let config = serde_json::to_value(run.config).map_err(|error| {
        parallel::Error::Rendezvous(format!("the configuration can't be compared: {error}"))
    })?;
    let mut facts = parallel::Facts::new();
    for (name, value) in config.as_object().into_iter().flatten() {
        if !["data", "devices", "checkpoints"].contains(&name.as_str()) {
            facts = facts.with(format_args!("the setting {name}"), value);
        }
    }
    let summary = run.stages[0].summary();
    facts = facts
        .with("the precision", run.config.devices.precision)
        .with("a number of trainable parameters of", summary.trainable)
        .with("a number of running averages of", summary.non_trainable);
    for (what, samples) in [("training", &run.prepared.train), ("validation", &run.prepared.val)] {
        let mut digest = DefaultHasher::new();
        samples.labels().hash(&mut digest);
        let value = format!("{}, labels {:016x}", samples.len(), digest.finish());
        facts = facts.with(format_args!("a number of {what} images of"), value);
    }
    Ok(facts.with("a first step of", run.resume.map_or(0, |resume| resume.state.step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parallel::cluster::Source;

    fn place(local_rank: usize, local_world: usize) -> Place {
        Place {
            rank: 5,
            world: 8,
            local_rank,
            local_world,
            master: None,
            job: None,
            restart: 0,
            source: Source::OpenMpi,
        }
    }

    #[test]
    fn processes_of_a_machine_share_its_devices() {
        let mut config = crate::recipe("quick").unwrap();
        config.devices.threads = 6;
        let shared = share(&config, &place(1, 4)).unwrap();
        assert_eq!((shared.threads, shared.gpus, shared.replicas), (1, Some(vec![1]), 1));
        config.devices.gpus = Some(vec![4, 7]);
        assert_eq!(share(&config, &place(1, 2)).unwrap().gpus, Some(vec![7]));
        config.devices.device = DeviceKind::Cpu;
        let shared = share(&config, &place(1, 2)).unwrap();
        assert_eq!((shared.threads, shared.gpus), (3, None));
    }

    #[test]
    fn a_process_has_one_tower() {
        let mut config = crate::recipe("quick").unwrap();
        config.devices.replicas = 2;
        assert!(
            share(&config, &place(0, 2)).unwrap_err().to_string().contains("8 processes have one tower each")
        );
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn a_build_without_transport_says_so() {
        let error = connect(&place(0, 2), Duration::ZERO).err().unwrap().to_string();
        assert!(error.starts_with("Open MPI started 8 processes, but this build can't join them"), "{error}");
    }
}
