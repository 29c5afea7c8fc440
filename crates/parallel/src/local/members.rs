use super::barrier::Barrier;
use super::hangs::PATIENCE;
use crate::mpi::Across;
use crate::{Collective, Local, Nccl, Result};
use program::Device;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tensor_cuda::{Cuda, nccl};

/// The members of a group of threads, by rank, and the barrier that their runner can abort.
pub(crate) struct Members {
    pub(crate) collectives: Vec<Box<dyn Collective>>,
    pub(crate) barrier: Arc<Barrier>,
    /// The way to the replicas of other processes, which a failing thread calls off.
    pub(crate) across: Option<Arc<Across>>,
    /// How long a thread may keep the others waiting.
    pub(crate) patience: Duration,
}

impl Members {
    /// A group with this barrier.
    pub(crate) fn new<C: Collective + 'static>(
        members: Vec<C>,
        barrier: &Arc<Barrier>,
        patience: Duration,
    ) -> Members {
        let boxed = |member| Box::new(member) as Box<dyn Collective>;
        let collectives = members.into_iter().map(boxed).collect();
        Members { collectives, barrier: Arc::clone(barrier), across: None, patience }
    }

    /// A group on these devices: by NCCL if each replica has a separate GPU and NCCL is installed, else
    /// [`Local`].
    pub(crate) fn of(devices: &[Device], patience: Duration) -> Result<Members> {
        if on_gpus_of_their_own(devices) && nccl::available().is_ok() {
            let (members, group) = Nccl::on_threads(devices, patience)?;
            return Ok(Members::new(members, &group.failures.barrier, patience));
        }
        let barrier = Arc::new(Barrier::new(devices.len()));
        Ok(Members::new(Local::on(devices, &barrier)?, &barrier, patience))
    }

    /// A group that exchanges a few numbers, whatever its members' devices are.
    pub(crate) fn in_host_memory(world: usize) -> Members {
        let barrier = Arc::new(Barrier::new(world));
        Members::new(Local::group(&barrier, None), &barrier, PATIENCE)
    }

    /// The only replica of this process.
    pub(crate) fn alone(collective: impl Collective + 'static) -> Members {
        Members::new(vec![collective], &Arc::new(Barrier::new(1)), PATIENCE)
    }

    /// The `count` replicas of this process in a group of all processes.
    pub(crate) fn of_process(count: usize, across: Across, patience: Duration) -> Members {
        let (barrier, across) = (Arc::new(Barrier::new(count)), Arc::new(across));
        let members = Members::new(Local::group(&barrier, Some(&across)), &barrier, patience);
        Members { across: Some(across), ..members }
    }
}

/// Whether every replica has a separate GPU. NCCL refuses two ranks on one.
fn on_gpus_of_their_own(devices: &[Device]) -> bool {
    let mut seen = HashSet::new();
    let mut is_own = |cuda: &Cuda| !cuda.is_emulated() && seen.insert(cuda.options().gpu);
    devices.iter().all(|device| device.get().is_some_and(&mut is_own))
}
