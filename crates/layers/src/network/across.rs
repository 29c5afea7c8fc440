//! Training passes in which the layers of several replicas meet.

use super::instance::Network;
use crate::meeting::Across;
use crate::{AcrossReplicas, Draws, Error, Result};
use tensor::Backend;

impl Network {
    /// Makes ready for [`train_pass_across`](Network::train_pass_across) with so many replicas: allocates the board on which
    /// layers meet. Says whether any of them does.
    ///
    /// # Errors
    /// What the device says.
    pub fn prepare_across(&mut self, replicas: usize) -> Result<bool> {
        let steps = self.lanes.iter().flat_map(|lane| &lane.steps);
        let len = steps.map(|step| step.action.board_len(replicas)).max().unwrap_or(0);
        self.board = Some(self.device.alloc(len)?);
        Ok(len > 0)
    }

    /// As [`train_pass`](Network::train_pass), but layers that compute with statistics of the batch, as
    /// [`BatchNormalization`](crate::BatchNormalization) does, take those of the whole batch of all `replicas`. So together they
    /// compute, up to rounding, what one replica would with all samples.
    ///
    /// All replicas call it for every batch, those without samples too: their layers meet the others' all the same. A network
    /// that wasn't [made ready](Network::prepare_across) is at its first pass.
    ///
    /// # Errors
    /// As [`train_pass`](Network::train_pass), and if replicas can't meet.
    pub fn train_pass_across(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        replicas: &mut dyn AcrossReplicas,
    ) -> Result<()> {
        if self.board.is_none() {
            self.prepare_across(replicas.world())?;
        }
        let across = Some(Across { replicas, samples: global_batch });
        self.train_in_parts(draws, label_smoothing, global_batch, across, |_, _, _| Ok::<_, Error>(()))?;
        self.finish_grads()
    }
}
