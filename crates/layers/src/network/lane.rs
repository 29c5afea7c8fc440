use super::lowering::Prepared;
use crate::Result;
use tensor::{Arena, Backend, Device, Ints, Storage, Target};

/// What a network keeps of one batch from its forward to its backward pass: activations, statistics, labels.
pub(super) struct Lane {
    pub(super) activations: Storage,
    pub(super) statistics: Storage,
    /// With room for mixed ones.
    pub(super) labels: Ints,
    /// Whether these are mixed: whole [`Target`]s.
    pub(super) mixed: bool,
    /// Samples in the batch.
    pub(super) n: usize,
    /// Whether the last pass was one of training: its output lies elsewhere than that of inference.
    pub(super) trained: bool,
}

impl Lane {
    /// With room for each of some programs.
    pub(super) fn new(programs: &[&Prepared], device: &Device, batch: usize) -> Result<Lane> {
        let len = |arena| programs.iter().map(|program| program.executable.len(arena)).max().unwrap_or(0);
        Ok(Lane {
            activations: device.alloc_activations(len(Arena::Activations))?,
            statistics: device.alloc(len(Arena::Statistics))?,
            labels: device.alloc_ints(batch * Target::WORDS)?,
            mixed: false,
            n: 0,
            trained: false,
        })
    }
}
