//! The optimizer of a configuration, at work on the parameters of a network.

use crate::{Config, Result};
use layers::{Graph, Network, Role};
use optim::{OptimizerState, ParamGroup};

impl Config {
    /// What steps over the parameters of a network, or of a pipeline's stage of it.
    ///
    /// # Errors
    /// [`Error::Optimizer`](crate::Error::Optimizer) for options that make no sense, and what the device says.
    pub fn optimizer_on(&self, network: &Network) -> Result<OptimizerState> {
        let arena = network.arena();
        let state = OptimizerState::new(network.device(), self.training.optimizer, arena.trainable.len)?;
        let trainable = arena.slots().iter().filter(|slot| slot.role == Role::Trainable);
        Ok(state
            .grouped(&self.training.param_groups, trainable.map(|slot| (slot.name.as_str(), slot.span)))?)
    }

    /// Refuses parameter groups that take none of the network's parameters: misspelt ones, most likely.
    pub(crate) fn check_groups(&self, graph: &Graph) -> Result<()> {
        if self.training.param_groups.is_empty() {
            return Ok(());
        }
        let names = graph.trained();
        Ok(ParamGroup::check_all(&self.training.param_groups, names.iter().map(String::as_str))?)
    }
}
