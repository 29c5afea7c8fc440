//! A pipeline stage, and the tensors that it passes to the first stage.

use crate::Result;
use checkpoint::Tensors;
use layers::Network;
use parallel::Stage;
use program::Span;
use std::sync::{Mutex, MutexGuard};

/// The parameters of one stage, and its tensors that only training needs, by kind.
type OfStage = (Tensors, Vec<Tensors>);

/// The stages of the first replica leave copies of their tensors here, for checkpoints.
#[derive(Default)]
pub(crate) struct StageTensors(Mutex<Vec<(usize, OfStage)>>);

impl StageTensors {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, OfStage)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A worker's place in its replica's pipeline.
pub(crate) struct PipelineStage<'a> {
    pub(crate) stage: Stage,
    pub(crate) tensors: &'a StageTensors,
    /// The last layer of each stage except the last, as text.
    pub(crate) cuts: &'a str,
}

impl PipelineStage<'_> {
    pub(crate) fn stages(&self) -> usize {
        self.stage.stages()
    }

    /// Adds up some numbers of `grads` over the stages of this replica: the metrics, which only the last one
    /// has, and requests to stop. With the sum over the replicas, all stages get the same numbers.
    pub(crate) fn sum_over_stages(&mut self, network: &mut Network, numbers: Span) -> Result<()> {
        if self.stages() == 1 {
            return Ok(());
        }
        let device = network.device().clone();
        Ok(self.stage.replica.all_reduce_sum(&device, &mut network.arena_mut().grads, numbers)?)
    }

    /// Leaves a copy of a stage's tensors for the first stage, and waits until all stages have done so.
    pub(crate) fn hand_over(&mut self, own: Option<OfStage>) -> Result<()> {
        if let Some(own) = own {
            let number = self.stage.number();
            let mut tensors = self.tensors.lock();
            tensors.retain(|(other, _)| *other != number);
            tensors.push((number, own));
            tensors.sort_by_key(|(number, _)| *number);
        }
        Ok(self.stage.replica.barrier()?)
    }

    /// Calls `see` with the tensors that the other stages left, in order.
    pub(crate) fn each_other(&self, mut see: impl FnMut(&OfStage) -> Result<()>) -> Result<()> {
        self.tensors.lock().iter().try_for_each(|(_, of_stage)| see(of_stage))
    }
}
