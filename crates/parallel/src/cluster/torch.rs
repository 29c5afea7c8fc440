use super::{Environment, Place, Source};
use crate::Result;

/// The variables of torchrun, which `towers launch`, Kubernetes' `PyTorchJob` and many scripts set too.
pub(super) fn read(env: &Environment<'_>) -> Result<Option<Place>> {
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
