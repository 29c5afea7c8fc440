use super::environment::MOST_PROCESSES;
use super::{Environment, Place, Source, launchers, slurm, tf_config};
use crate::{Error, Result};

type Read = fn(&Environment<'_>) -> Result<Option<Place>>;

/// Launchers besides torchrun and `towers launch`. Each group runs inside those that follow.
const LAUNCHERS: [&[Read]; 3] = [
    &[launchers::open_mpi, launchers::mpich],
    &[slurm::read],
    &[launchers::train_job, launchers::leader_worker_set, launchers::indexed_job],
];

/// The place of this process, read from `env`. `None` if no launcher set a variable.
///
/// The sources in order: `RANK` and `WORLD_SIZE` (torchrun, `towers launch`, `PyTorchJob`, scripts), Open
/// MPI, MPICH, SLURM, Kubernetes' `TrainJob`, `LeaderWorkerSet` and indexed `Job`, `TF_CONFIG`. Launchers may
/// be nested, and then the innermost counts, since an outer launcher counts agents or pods and not processes.
/// Inside torchrun or `towers launch`, variables of MPI, SLURM and Kubernetes are ignored; inside `mpirun`,
/// those of SLURM and Kubernetes; inside `srun`, those of Kubernetes. The remaining sources must agree on the
/// rank and the number of processes.
///
/// # Errors
/// [`Error::Variable`] for a malformed variable, [`Error::Contradiction`] if two sources disagree.
pub fn discover(env: impl Fn(&str) -> Option<String>) -> Result<Option<Place>> {
    let env = Environment(&env);
    let mut found: Vec<Place> = launchers::torch(&env)?.into_iter().collect();
    let mut inside = found.iter().any(|place| place.source != Source::Variables);
    for launchers in LAUNCHERS {
        if inside {
            break;
        }
        for read in launchers {
            let place = read(&env)?;
            inside |= place.is_some();
            found.extend(place);
        }
    }
    found.extend(tf_config::read(&env)?);
    let mut found = found.into_iter();
    let place = found.next();
    if let Some(place) = &place {
        found.try_for_each(|other| agree(place, &other))?;
    }
    check_lone_world(&env, place.as_ref())?;
    Ok(place)
}

/// A variable of this process, for [`discover`], [`is_restarted`] and
/// [`Settings::discover`](crate::Settings::discover).
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Whether this job is a restart, according to the launcher of this process or to SLURM. SLURM restarts whole
/// jobs, so its count holds for processes that another launcher started within the job too.
///
/// # Errors
/// As [`discover`].
pub fn is_restarted(env: impl Fn(&str) -> Option<String>) -> Result<bool> {
    let place = discover(&env)?;
    let env = Environment(&env);
    let requeued = env.has("SLURM_JOB_ID") && env.restarts("SLURM_RESTART_COUNT")? > 0;
    Ok(requeued || place.is_some_and(|place| place.restart > 0))
}

/// Whether two sources for this process agree.
fn agree(one: &Place, other: &Place) -> Result<()> {
    let ((rank, world), (other_rank, other_world)) = (one.source.variables(), other.source.variables());
    contradiction((world, one.world), (other_world, other.world))?;
    contradiction((rank, one.rank), (other_rank, other.rank))
}

/// `WORLD_SIZE` without `RANK` is not a place, but it must not contradict one.
fn check_lone_world(env: &Environment<'_>, place: Option<&Place>) -> Result<()> {
    if env.has("RANK") {
        return Ok(());
    }
    let Some(lone) = env.number("WORLD_SIZE", 1..=MOST_PROCESSES)? else { return Ok(()) };
    match place {
        Some(place) => {
            contradiction(("WORLD_SIZE", lone as usize), (place.source.variables().1, place.world))
        }
        None if lone == 1 => Ok(()),
        None => Err(Error::missing("RANK", format!("set, since WORLD_SIZE is {lone}"))),
    }
}

fn contradiction(one: (&'static str, usize), other: (&'static str, usize)) -> Result<()> {
    if one.1 == other.1 {
        return Ok(());
    }
    Err(Error::Contradiction { one: one.0, value: one.1, other: other.0, against: other.1 })
}
