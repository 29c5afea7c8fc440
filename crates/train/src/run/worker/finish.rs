//! The last steps of a run that ends early.

use super::Worker;
use crate::Result;

impl Worker<'_> {
    /// Replaces the weights by their average if the run ends before the step that would have done so; returns
    /// whether it has. Not if the model is that of the best epoch, which stays as it was measured.
    pub(crate) fn take_average(&mut self) -> Result<bool> {
        let done = self.progress();
        let outputs = &self.run.config.outputs;
        let restores = outputs.early_stop.as_ref().is_some_and(|stop| stop.restore_best_weights);
        if restores || outputs.checkpoints.save_best.is_some() {
            return Ok(false);
        }
        match &self.average {
            Some(average) if !average.has_overwritten(&done) => {
                average.overwrite(&self.device, &mut self.network)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
