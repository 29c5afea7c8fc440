use super::{Environment, Place, Source};
use crate::Result;

/// The variables of torchrun, which `towers launch`, Kubernetes' `PyTorchJob` and many scripts set too.
pub(super) fn read(env: &Environment<'_>) -> Result<Option<Place>> {
    let (names, locals) = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"));
    let Some((rank, world)) = env.ranks(names.0, names.1)? else { return Ok(None) };
    let (local_rank, local_world) = env.local_ranks(locals.0, locals.1, world)?;
    let (one_device, master) = (env.has(locals.0), env.master()?);
    let place = |source, job, restart| {
        Ok(Some(Place { rank, world, local_rank, local_world, one_device, master, job, restart, source }))
    };
    if let Some(job) = env.text("TOWERS_LAUNCH_ID") {
        return place(Source::Launch, Some(job), env.restarts("TOWERS_RESTART_COUNT")?);
    }
    let restart = env.restarts("TORCHELASTIC_RESTART_COUNT")?;
    match env.text("TORCHELASTIC_RUN_ID") {
        Some(job) => place(Source::Torchrun, Some(job), restart),
        None => place(Source::Variables, None, restart),
    }
}
