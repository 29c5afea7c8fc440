//! Shards move between replicas in the middle of a run.

use super::Worker;
use crate::Result;
use crate::data::Source;
use crate::run::division::{self, Division};

impl Worker<'_> {
    /// A better division of the shards, if these throughputs of the replicas have one. They are the same on
    /// all replicas, and so is the answer.
    pub(crate) fn better_division(&self, rates: &[f64]) -> Option<Division> {
        let moves = division::moves_shards(self.run.config, self.collective.world());
        division::better(self.passes.shards(), rates).filter(|_| moves)
    }

    /// Changes the shards of this replica between two steps, as all do.
    pub(crate) fn divide(&mut self, division: Division, sources: [&mut Source; 2]) -> Result<()> {
        let Division { weights, shards } = division;
        sources.into_iter().try_for_each(|source| source.set_shards(&shards))?;
        self.passes.set_shards(&self.network, shards)?;
        self.state.device_weights = weights.to_string();
        Ok(())
    }
}
