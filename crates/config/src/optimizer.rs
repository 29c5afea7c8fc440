//! The optimizer of a configuration, for the parameters of a network.

use crate::{Config, Result};
use towers_layers::{Graph, Network};
use towers_optim::ParamGroup;
use towers_program::OptimizerState;

impl Config {
    /// The optimizer state for the parameters of a network, or of one pipeline stage.
    ///
    /// # Errors
    /// [`Error::Optimizer`](crate::Error::Optimizer) for invalid options, and the errors of the device.
    pub fn optimizer_on(&self, network: &Network) -> Result<OptimizerState> {
        let arena = network.arena();
        let state = OptimizerState::new(network.device(), self.training.optimizer, arena.trainable.len)?;
        Ok(state.grouped(&self.training.param_groups, arena.trainable_runs())?)
    }

    /// Refuses parameter groups without parameters: they are probably misspelt.
    pub(crate) fn check_groups(&self, graph: &Graph) -> Result<()> {
        if self.training.param_groups.is_empty() {
            return Ok(());
        }
        let names = graph.trained();
        Ok(ParamGroup::check_all(&self.training.param_groups, names.iter().map(String::as_str))?)
    }
}
