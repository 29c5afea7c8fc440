use super::barrier::Barrier;
use super::hangs::PATIENCE;
#[cfg(feature = "cuda")]
use super::on_device::{on_gpus, on_gpus_of_their_own};
#[cfg(feature = "cuda")]
use crate::Nccl;
use crate::{Across, Collective, Local, Result};
use std::sync::Arc;
use std::time::Duration;
use towers_program::Device;

/// The replicas of this process in a group: their collectives by rank, and what a failing thread aborts. For
/// [`run_members`](crate::run_members).
pub struct Members {
    pub(crate) collectives: Vec<Box<dyn Collective>>,
    /// Their runner can abort it.
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
        #[cfg(feature = "cuda")]
        if on_gpus_of_their_own(devices) {
            let (members, group) = Nccl::on_threads(devices, patience)?;
            return Ok(Members::new(members, &group.failures.barrier, patience));
        }
        let barrier = Arc::new(Barrier::new(devices.len()));
        #[cfg(feature = "cuda")]
        let on_device = on_gpus(devices)?;
        #[cfg(not(feature = "cuda"))]
        let on_device = None;
        Ok(Members::new(Local::on(on_device, &barrier), &barrier, patience))
    }

    /// A group that exchanges a few numbers, whatever its members' devices are.
    pub(crate) fn in_host_memory(world: usize) -> Members {
        let barrier = Arc::new(Barrier::new(world));
        Members::new(Local::group(&barrier, None), &barrier, PATIENCE)
    }

    /// The only replica of this process.
    pub fn alone(collective: impl Collective + 'static) -> Members {
        Members::new(vec![collective], &Arc::new(Barrier::new(1)), PATIENCE)
    }

    /// The `count` replicas of this process in a group of all processes.
    pub fn of_process(count: usize, across: Across, patience: Duration) -> Members {
        let (barrier, across) = (Arc::new(Barrier::new(count)), Arc::new(across));
        let members = Members::new(Local::group(&barrier, Some(&across)), &barrier, patience);
        Members { across: Some(across), ..members }
    }
}
