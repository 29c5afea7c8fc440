use super::{Environment, Place, Source};
use crate::Result;

/// The variables of Open MPI's `mpirun`.
pub(super) fn open_mpi(env: &Environment<'_>) -> Result<Option<Place>> {
    let local = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    read(env, Source::OpenMpi, local, env.text("PMIX_NAMESPACE"))
}

/// The variables of MPICH's `mpiexec` and of other launchers with Hydra.
///
/// `srun --mpi=pmi2` sets the first two too, but not those of the machine. Then SLURM's own variables say
/// more.
pub(super) fn mpich(env: &Environment<'_>) -> Result<Option<Place>> {
    if env.has("SLURM_PROCID") && !env.has("MPI_LOCALRANKID") {
        return Ok(None);
    }
    read(env, Source::Mpich, ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"), None)
}

fn read(
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
