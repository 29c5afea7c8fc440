use super::{Environment, Place, Source};
use crate::Result;

/// The variables of a `TrainJob` with a runtime for PyTorch. They are torchrun's options; the program itself is
/// the only process of its pod, whatever `PET_NPROC_PER_NODE` says.
pub(super) fn train_job(env: &Environment<'_>) -> Result<Option<Place>> {
    read(env, Source::TrainJob, ("PET_MASTER_ADDR", "PET_MASTER_PORT"))
}

/// The variables of a `LeaderWorkerSet`. The leader is rank 0.
pub(super) fn leader_worker_set(env: &Environment<'_>) -> Result<Option<Place>> {
    read(env, Source::LeaderWorkerSet, ("LWS_LEADER_ADDRESS", "MASTER_PORT"))
}

/// The index of a pod, if the manifest tells the number of pods. Else each pod trains alone, as in a search for
/// the best seed. If the manifest sets the rank too, the index may have another meaning, such as a place in one
/// of several jobs.
pub(super) fn indexed_job(env: &Environment<'_>) -> Result<Option<Place>> {
    if env.has("RANK") || !env.has("WORLD_SIZE") {
        return Ok(None);
    }
    read(env, Source::IndexedJob, ("MASTER_ADDR", "MASTER_PORT"))
}

/// The only process of a pod.
fn read(
    env: &Environment<'_>,
    source: Source,
    (host, port): (&'static str, &'static str),
) -> Result<Option<Place>> {
    let Some(place) = env.place(source)? else { return Ok(None) };
    let master = env.master(env.address(host, port)?)?;
    Ok(Some(Place { master, ..place }))
}
