use super::link::Link;
use crate::local::abort::{Abortable, Participant};
use crate::local::barrier::Barrier;
use crate::local::hangs::PATIENCE;
use crate::local::members::Members;
#[cfg(feature = "cuda")]
use crate::local::on_device::refuse_clones;
use crate::local::replicas::{run_members, run_threads};
use crate::{Collective, Error, Local, Replica, Result};
use core::fmt::Display;
use core::time::Duration;
use std::sync::Arc;
use towers_program::Device;
use towers_program::ops::Neighbor;

/// A stage of a replica's pipeline: some consecutive layers on a separate device, with links to the
/// neighbouring stages.
pub struct Stage {
    number: usize,
    stages: usize,
    before: Option<Ways>,
    behind: Option<Ways>,
    /// The stages of this replica.
    pub replica: Box<dyn Collective>,
}

/// The links from and to a neighbouring stage.
struct Ways {
    from: Arc<Link>,
    to: Arc<Link>,
}

impl Stage {
    /// The only stage of a replica that is not split.
    pub fn whole() -> Stage {
        Stage { number: 0, stages: 1, before: None, behind: None, replica: Box::new(Local::alone()) }
    }

    /// Its number, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The number of stages.
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// Whether it reads the network's input.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Whether it computes the network's output.
    pub fn is_last(&self) -> bool {
        self.number + 1 == self.stages
    }

    /// Sends a neighbouring stage the tensor that `fill` writes. Doesn't wait. The memory is reused, so
    /// `fill` finds an older tensor in it. [`Exchanges::of_stage`](crate::Exchanges::of_stage) does this in
    /// the middle of a pass.
    ///
    /// # Errors
    /// If another stage failed, and the errors of `fill`.
    pub fn send<E: From<Error>>(
        &self,
        to: Neighbor,
        fill: impl FnOnce(&mut Vec<f32>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.neighbor(to)?.to.send(fill)
    }

    /// Waits for the next tensor from a neighbouring stage.
    ///
    /// # Errors
    /// If another stage failed, and the errors of `read`.
    pub fn receive<E: From<Error>>(
        &self,
        from: Neighbor,
        read: impl FnOnce(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.neighbor(from)?.from.receive(read)
    }

    fn neighbor(&self, which: Neighbor) -> Result<&Ways> {
        let (ways, place) = match which {
            Neighbor::Previous => (&self.before, "before the first"),
            Neighbor::Next => (&self.behind, "behind the last"),
        };
        ways.as_ref().ok_or(Error::NoStage { place, stages: self.stages })
    }
}

/// Runs `body` once for each device, each on a separate thread, and returns the results by rank.
///
/// If a body fails or panics, the collectives of all others fail, so none waits for it forever. The returned
/// error is that first failure, not one that follows from it. Collectives also fail after another body has
/// returned. (On a single device the body runs on the calling thread, and its panic is the caller's.)
///
/// A body that hangs is named too: one that has come to no operation of a collective for 5 minutes, while
/// others wait. ([`run_stages`] takes another time-out.) If a body has not returned 5
/// minutes after a failure, nothing can stop its thread: the process prints the failure and ends, with exit
/// status 1.
///
/// A GPU may serve several replicas if it is opened for each: clones of one device share the memory that a step works with.
///
/// # Errors
/// The error of the replica that failed first, and if two devices are clones of one GPU.
pub fn run_replicas<T, E, F>(devices: &[Device], body: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + Display + Send,
    F: Fn(Replica) -> Result<T, E> + Sync,
{
    run_stages(devices, 1, PATIENCE, |replica, _| body(replica))
}

/// Runs `body` for every stage of every replica, each on a separate thread, and returns the results.
/// `devices` are those of the first replica's stages, then those of the second one's, and so on.
///
/// The collective of each [`Replica`] connects the same stage of all replicas, for gradients. That of each
/// [`Stage`] connects the stages of one replica. With one stage this is [`run_replicas`].
/// If a body fails, panics or hangs, all others fail at their next operation, as there. `patience` is how long
/// a body may keep the others waiting.
///
/// ```
/// use towers_parallel::{Error, run_stages};
/// use towers_program::ops::Neighbor;
///
/// // Two replicas of two stages: each first stage sends its number on.
/// let patience = std::time::Duration::from_secs(300);
/// let seen = run_stages(&vec![towers_tensor_cpu::device(1); 4], 2, patience, |replica, stage| {
///     let mut number = replica.rank() as f32 + 1.0;
///     if stage.is_first() {
///         stage.send(Neighbor::Next, |tensor| Ok::<_, Error>(tensor.push(number)))?;
///     } else {
///         stage.receive(Neighbor::Previous, |tensor| Ok::<_, Error>(number += tensor[0]))?;
///     }
///     Ok::<_, Error>(number)
/// })?;
/// assert_eq!(seen, [1.0, 2.0, 2.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// The error of the body that failed first, or [`Error::Uneven`] if the devices can't be divided; and if two devices are
/// clones of one GPU.
pub fn run_stages<T, E, F>(
    devices: &[Device],
    stages: usize,
    patience: Duration,
    body: F,
) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + Display + Send,
    F: Fn(Replica, Stage) -> Result<T, E> + Sync,
{
    if stages == 0 || !devices.len().is_multiple_of(stages) {
        return Err(Error::Uneven { devices: devices.len(), stages }.into());
    }
    match (stages, devices) {
        (_, []) => return Ok(Vec::new()),
        (1, [device]) => return Ok(vec![body(Replica::alone(device.clone()), Stage::whole())?]),
        (1, _) => {
            let group = Members::of(devices, patience)?;
            return run_members(devices, group, |replica| body(replica, Stage::whole()));
        }
        _ => {}
    }
    #[cfg(feature = "cuda")]
    refuse_clones(devices)?;
    run_threads(members(devices, stages, patience)?, patience, |(replica, stage)| body(replica, stage))
}

/// The argument of a stage's body.
type Member = (Replica, Stage);

/// All threads, replica by replica.
fn members(devices: &[Device], stages: usize, patience: Duration) -> Result<Vec<(Member, Participant)>> {
    let replicas = devices.len() / stages;
    let mut across = Vec::new();
    for stage in 0..stages {
        let of_stage: Vec<Device> = devices.iter().skip(stage).step_by(stages).cloned().collect();
        let group =
            if replicas == 1 { Members::in_host_memory(1) } else { Members::of(&of_stage, patience)? };
        let Members { collectives, barrier, .. } = group;
        across.push((collectives.into_iter(), barrier));
    }
    let (mut members, mut own) = (Vec::new(), Vec::<Vec<Arc<dyn Abortable>>>::new());
    for devices in devices.chunks(stages) {
        let Members { collectives, barrier: within, .. } = Members::in_host_memory(stages);
        let on: Vec<Arc<Link>> = (1..stages).map(|_| Link::new()).collect();
        let back: Vec<Arc<Link>> = (1..stages).map(|_| Link::new()).collect();
        for ((number, collective), device) in collectives.into_iter().enumerate().zip(devices) {
            let link = |ways: &[Arc<Link>], k: usize| Arc::clone(&ways[k]);
            let before =
                (number > 0).then(|| Ways { from: link(&on, number - 1), to: link(&back, number - 1) });
            let behind =
                (number + 1 < stages).then(|| Ways { from: link(&back, number), to: link(&on, number) });
            let (group, barrier) = &mut across[number];
            let mut abortables: Vec<Arc<dyn Abortable>> =
                vec![Arc::clone(barrier) as _, Arc::clone(&within) as _];
            for side in before.iter().chain(&behind) {
                abortables.extend([Arc::clone(&side.from) as Arc<dyn Abortable>, Arc::clone(&side.to) as _]);
            }
            own.push(abortables);
            let collective_across = group.next().ok_or(Error::Uneven { devices: devices.len(), stages })?;
            let across = Replica { device: device.clone(), collective: collective_across };
            members.push((across, Stage { number, stages, before, behind, replica: collective }));
        }
    }
    // No thread waits at the first barrier: it only records who failed first.
    let ledger: Arc<dyn Abortable> = Arc::new(Barrier::new(devices.len()));
    let all: Arc<[Arc<dyn Abortable>]> = [ledger].into_iter().chain(own.iter().flatten().cloned()).collect();
    let tie = |(number, own)| {
        let (replica, stage) = (number / stages, number % stages);
        let who = format!("stage {stage} of replica {replica}");
        Participant { number, replica, who, own, all: Arc::clone(&all) }
    };
    Ok(members.into_iter().zip(own.into_iter().enumerate().map(tie)).collect())
}
