//! The launchers that set a few variables. SLURM and `TF_CONFIG` have their own files.

use super::{Environment, Place, Source};
use crate::Result;

/// The variables of torchrun, which `towers launch`, Kubernetes' `PyTorchJob` and many scripts set too.
pub(super) fn torch(env: &Environment<'_>) -> Result<Option<Place>> {
    let (source, job, restarts) = if let Some(job) = env.text("TOWERS_LAUNCH_ID") {
        (Source::Launch, Some(job), "TOWERS_RESTART_COUNT")
    } else {
        let job = env.text("TORCHELASTIC_RUN_ID");
        let source = if job.is_some() { Source::Torchrun } else { Source::Variables };
        (source, job, "TORCHELASTIC_RESTART_COUNT")
    };
    let Some(place) = env.place(source)? else { return Ok(None) };
    let (local_rank, local_world) = env.local_ranks("LOCAL_RANK", "LOCAL_WORLD_SIZE", place.world)?;
    let (one_device, master) = (env.has("LOCAL_RANK"), env.master(None)?);
    let restart = env.restarts(restarts)?;
    Ok(Some(Place { local_rank, local_world, one_device, master, job, restart, ..place }))
}

/// The variables of Open MPI's `mpirun`.
pub(super) fn open_mpi(env: &Environment<'_>) -> Result<Option<Place>> {
    let local = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    mpi(env, Source::OpenMpi, local, env.text("PMIX_NAMESPACE"))
}

/// The variables of MPICH's `mpiexec` and of other launchers with Hydra.
///
/// `srun --mpi=pmi2` sets the first two too, but not those of the machine. Then SLURM's own variables say
/// more.
pub(super) fn mpich(env: &Environment<'_>) -> Result<Option<Place>> {
    if env.has("SLURM_PROCID") && !env.has("MPI_LOCALRANKID") {
        return Ok(None);
    }
    mpi(env, Source::Mpich, ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"), None)
}

fn mpi(
    env: &Environment<'_>,
    source: Source,
    local: (&'static str, &'static str),
    job: Option<String>,
) -> Result<Option<Place>> {
    let Some(place) = env.place(source)? else { return Ok(None) };
    let (local_rank, local_world) = env.local_ranks(local.0, local.1, place.world)?;
    let master = env.master(None)?;
    // Set by `towers launch`, which starts mpirun.
    let restart = env.restarts("TOWERS_RESTART_COUNT")?;
    let one_device = local_world > 1;
    Ok(Some(Place { local_rank, local_world, one_device, master, job, restart, ..place }))
}

/// The variables of a `TrainJob` with a runtime for PyTorch. They are torchrun's options; the program itself is
/// the only process of its pod, whatever `PET_NPROC_PER_NODE` says.
pub(super) fn train_job(env: &Environment<'_>) -> Result<Option<Place>> {
    pod(env, Source::TrainJob, ("PET_MASTER_ADDR", "PET_MASTER_PORT"))
}

/// The variables of a `LeaderWorkerSet`. The leader is rank 0.
pub(super) fn leader_worker_set(env: &Environment<'_>) -> Result<Option<Place>> {
    pod(env, Source::LeaderWorkerSet, ("LWS_LEADER_ADDRESS", "MASTER_PORT"))
}

/// The index of a pod, if the manifest tells the number of pods. Else each pod trains alone, as in a search for
/// the best seed. If the manifest sets the rank too, the index may have another meaning, such as a place in one
/// of several jobs.
pub(super) fn indexed_job(env: &Environment<'_>) -> Result<Option<Place>> {
    if env.has("RANK") || !env.has("WORLD_SIZE") {
        return Ok(None);
    }
    pod(env, Source::IndexedJob, ("MASTER_ADDR", "MASTER_PORT"))
}

/// The only process of a pod.
fn pod(
    env: &Environment<'_>,
    source: Source,
    (host, port): (&'static str, &'static str),
) -> Result<Option<Place>> {
    let Some(place) = env.place(source)? else { return Ok(None) };
    let master = env.master(env.address(host, port)?)?;
    Ok(Some(Place { master, ..place }))
}
