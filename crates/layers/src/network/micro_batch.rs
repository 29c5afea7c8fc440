use super::lowering::Prepared;
use crate::Result;
use towers_program::{Arena, Device, Ints, Storage, Target};

/// The data of one batch from its forward to its backward pass: activations, statistics, labels.
pub(super) struct MicroBatch {
    pub(super) activations: Storage,
    pub(super) statistics: Storage,
    /// With room for a [`Target`] a sample, or for its multi-hot words.
    pub(super) labels: Ints,
    /// Whether the labels are whole [`Target`]s.
    pub(super) targets: bool,
    /// Samples in the batch.
    pub(super) n: usize,
    /// The last pass, which decides the place of the output.
    pub(super) pass: Pass,
}

/// The passes of a network, each with its own program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    Inference,
    Training,
    /// Training with the statistics of all replicas.
    Synchronized,
}

impl Pass {
    /// Its program. A training pass without one is refused.
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
    /// With room for each of these programs, and for labels of so many words.
    pub(super) fn new(
        programs: &[&Prepared],
        device: &Device,
        batch: usize,
        words: usize,
    ) -> Result<MicroBatch> {
        let len = |arena| programs.iter().map(|program| program.executable.len(arena)).max().unwrap_or(0);
        Ok(MicroBatch {
            activations: device.alloc_activations(len(Arena::Activations))?,
            statistics: device.alloc(len(Arena::Statistics))?,
            labels: device.alloc_ints(batch * words.max(Target::WORDS))?,
            targets: false,
            n: 0,
            pass: Pass::Inference,
        })
    }
}
