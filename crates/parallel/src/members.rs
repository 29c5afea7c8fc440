use crate::barrier::Barrier;
use crate::{Collective, Local, Nccl, Result};
use program::Device;
use std::collections::HashSet;
use std::sync::Arc;
use tensor_cuda::{Cuda, nccl};

/// The members of a group of threads, by rank, and the barrier that their runner can abort.
pub(crate) struct Members {
    pub(crate) collectives: Vec<Box<dyn Collective>>,
    pub(crate) barrier: Arc<Barrier>,
}

impl Members {
    /// A group on these devices: by NCCL if each replica has a separate GPU and NCCL is installed, else
    /// [`Local`].
    pub(crate) fn of(devices: &[Device]) -> Result<Members> {
        let barrier = Arc::new(Barrier::new(devices.len()));
        let collectives = if on_gpus_of_their_own(devices) && nccl::available().is_ok() {
            boxed(Nccl::on_with_barrier(&barrier, devices)?)
        } else {
            boxed(Local::on_with_barrier(&barrier, devices)?)
        };
        Ok(Members { collectives, barrier })
    }

    /// A group that exchanges a few numbers, whatever its members' devices are.
    pub(crate) fn in_host_memory(world: usize) -> Members {
        let barrier = Arc::new(Barrier::new(world));
        Members { collectives: boxed(Local::with_barrier(&barrier, world)), barrier }
    }
}

pub(crate) fn boxed<C: Collective + 'static>(members: Vec<C>) -> Vec<Box<dyn Collective>> {
    members.into_iter().map(|member| Box::new(member) as Box<dyn Collective>).collect()
}

/// Whether every replica has a separate GPU. NCCL refuses two ranks on one.
fn on_gpus_of_their_own(devices: &[Device]) -> bool {
    let mut seen = HashSet::new();
    let mut is_own = |cuda: &Cuda| !cuda.is_emulated() && seen.insert(cuda.options().gpu);
    devices.iter().all(|device| device.get().is_some_and(&mut is_own))
}
