use super::lowering::Prepared;
use crate::Result;
use program::{Arena, Device, Ints, Storage, Target};

/// What a network keeps of one batch from its forward to its backward pass: activations, statistics, labels.
pub(super) struct MicroBatch {
    pub(super) activations: Storage,
    pub(super) statistics: Storage,
    /// With room for mixed ones.
    pub(super) labels: Ints,
    /// Whether these are mixed: whole [`Target`]s.
    pub(super) mixed: bool,
    /// Samples in the batch.
    pub(super) n: usize,
    /// The last pass: each has its output at another place.
    pub(super) pass: Pass,
}

/// The passes that a network makes, each by a program of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    Inference,
    Training,
    /// Training with the statistics of all replicas.
    Synchronized,
}

impl Pass {
    /// Its program. A pass of training is refused where there is none.
    pub(super) fn of<'a>(
        self,
        infer: &'a Prepared,
        train: Option<&'a Prepared>,
        synchronized: Option<&'a Prepared>,
    ) -> &'a Prepared {
        let program = match self {
            Pass::Inference => None,
            Pass::Training => train,
            Pass::Synchronized => synchronized,
        };
        program.unwrap_or(infer)
    }
}

impl MicroBatch {
    /// With room for each of some programs.
    pub(super) fn new(programs: &[&Prepared], device: &Device, batch: usize) -> Result<MicroBatch> {
        let len = |arena| programs.iter().map(|program| program.executable.len(arena)).max().unwrap_or(0);
        Ok(MicroBatch {
            activations: device.alloc_activations(len(Arena::Activations))?,
            statistics: device.alloc(len(Arena::Statistics))?,
            labels: device.alloc_ints(batch * Target::WORDS)?,
            mixed: false,
            n: 0,
            pass: Pass::Inference,
        })
    }
}
