use crate::Result;
use core::time::Duration;
use layers::{Draws, Network};
use parallel::Exchanges;

/// One of a replica's shards of a batch, to be passed.
pub(crate) struct Pass<'a> {
    /// Its first sample in the whole batch.
    pub(crate) first: usize,
    /// With other replicas, where the pass has any.
    pub(crate) exchanges: Option<Exchanges<'a>>,
}

impl Pass<'_> {
    /// A training pass over the shard. Returns how long it waited for other replicas.
    pub(crate) fn train(
        self,
        network: &mut Network,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
    ) -> Result<Duration> {
        let draws = Draws { first_sample: self.first as u32, ..draws };
        let Some(exchanges) = self.exchanges else {
            network.train_pass(draws, label_smoothing, global_batch)?;
            return Ok(Duration::ZERO);
        };
        exchanges
            .run(|exchange| Ok(network.train_pass_with(draws, label_smoothing, global_batch, exchange)?))
    }
}
