use crate::abort::{Abortable, Participant};
use crate::barrier::Barrier;
use crate::link::Link;
use crate::members::Members;
use crate::replicas::run_threads;
use crate::{Collective, Error, Local, Replica, Result, run_replicas};
use core::fmt::Display;
use program::Device;
use program::ops::Neighbor;
use std::sync::Arc;

/// A place in a replica's pipeline: some consecutive layers on a device of their own, and the ways to the stages before and
/// behind.
pub struct Stage {
    number: usize,
    stages: usize,
    before: Option<Ways>,
    behind: Option<Ways>,
    /// The stages of this replica.
    pub replica: Box<dyn Collective>,
}

/// The ways from and to a stage next to this one.
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

    /// How many stages there are.
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

    /// Sends a stage next to this one what `fill` writes. Doesn't wait. The memory has been used before: `fill` finds some
    /// older tensor in it. [`Exchanges::of_stage`](crate::Exchanges::of_stage) does this in the middle of a pass.
    ///
    /// # Errors
    /// If another stage failed, and those of `fill`.
    pub fn send<E: From<Error>>(
        &self,
        to: Neighbor,
        fill: impl FnOnce(&mut Vec<f32>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.neighbor(to)?.to.send(fill)
    }

    /// Waits for the next tensor from a stage next to this one.
    ///
    /// # Errors
    /// If another stage failed, and those of `read`.
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

/// Runs `body` for every stage of every replica, each on a thread of its own, and returns what they return: `devices` are those
/// of the first replica's stages, then those of the second one's, and so on.
///
/// The collective of each [`Replica`] joins the same stage of all replicas, for gradients; that of each [`Stage`] joins
/// the stages of one replica. With one stage this is [`run_replicas`]. When a body fails or panics, all others fail at their
/// next operation, as there.
///
/// ```
/// use parallel::{Error, run_stages};
/// use program::ops::Neighbor;
///
/// // Two replicas of two stages: each first stage sends a number on, its neighbour sends back twice as much.
/// let seen = run_stages(&vec![tensor_cpu::device(1); 4], 2, |replica, stage| {
///     let mut seen = 0.0;
///     if stage.is_first() {
///         stage.send(Neighbor::Next, |tensor| {
///             tensor.push(replica.rank() as f32 + 1.0);
///             Ok::<_, Error>(())
///         })?;
///         stage.receive(Neighbor::Next, |tensor| {
///             seen = tensor[0];
///             Ok::<_, Error>(())
///         })?;
///     } else {
///         stage.receive(Neighbor::Previous, |tensor| {
///             seen = tensor[0];
///             Ok::<_, Error>(())
///         })?;
///         stage.send(Neighbor::Previous, |tensor| {
///             tensor.push(2.0 * seen);
///             Ok::<_, Error>(())
///         })?;
///     }
///     Ok::<_, Error>(seen)
/// })?;
/// assert_eq!(seen, [2.0, 1.0, 4.0, 2.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// The error of the body that failed first; [`Error::Uneven`] if the devices can't be shared out.
pub fn run_stages<T, E, F>(devices: &[Device], stages: usize, body: F) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + Display + Send,
    F: Fn(Replica, Stage) -> Result<T, E> + Sync,
{
    if stages == 0 || !devices.len().is_multiple_of(stages) {
        return Err(Error::Uneven { devices: devices.len(), stages }.into());
    }
    if stages == 1 {
        return run_replicas(devices, |replica| body(replica, Stage::whole()));
    }
    run_threads(members(devices, stages)?, |(replica, stage)| body(replica, stage))
}

/// What the body of a stage works with.
type Member = (Replica, Stage);

/// Who takes part, replica by replica, and what each is tied to.
fn members(devices: &[Device], stages: usize) -> Result<Vec<(Member, Participant)>> {
    let replicas = devices.len() / stages;
    let mut across = Vec::new();
    for stage in 0..stages {
        let of_stage: Vec<Device> = devices.iter().skip(stage).step_by(stages).cloned().collect();
        let group = if replicas == 1 { Members::in_host_memory(1) } else { Members::of(&of_stage)? };
        let Members { collectives, barrier } = group;
        across.push((collectives.into_iter(), barrier));
    }
    let (mut members, mut own) = (Vec::new(), Vec::<Vec<Arc<dyn Abortable>>>::new());
    for devices in devices.chunks(stages) {
        let Members { collectives, barrier: within } = Members::in_host_memory(stages);
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
    // Nobody meets at the first: it only remembers who failed first.
    let ledger: Arc<dyn Abortable> = Arc::new(Barrier::new(devices.len()));
    let all: Arc<[Arc<dyn Abortable>]> = [ledger].into_iter().chain(own.iter().flatten().cloned()).collect();
    let tie = |(number, own)| {
        let (replica, stage) = (number / stages, number % stages);
        let who = format!("stage {stage} of replica {replica}");
        Participant { number, replica, who, own, all: Arc::clone(&all) }
    };
    Ok(members.into_iter().zip(own.into_iter().enumerate().map(tie)).collect())
}
