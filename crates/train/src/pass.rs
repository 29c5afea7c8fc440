use crate::{Error, Result};
use layers::{Draws, Network};
use parallel::{Buckets, Collective};
use tensor::{Backend, Device, Span, Storage};

/// One of a replica's shards of a batch, to be passed.
pub(crate) struct Pass<'a> {
    /// Its first sample in the whole batch.
    pub(crate) first: usize,
    /// Where there are parts, those of the shards before it.
    pub(crate) earlier: Option<&'a [Storage]>,
    /// Where the replica has no shard behind it.
    pub(crate) buckets: Option<&'a mut Buckets>,
    /// The other replicas.
    pub(crate) collective: &'a mut dyn Collective,
}

impl Pass<'_> {
    /// A training pass over the shard. Of the last one, gradients go to the sum over all replicas, bucket by bucket, while it
    /// goes on.
    pub(crate) fn train(
        self,
        network: &mut Network,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
    ) -> Result<()> {
        let draws = Draws { first_sample: self.first as u32, ..draws };
        let Pass { earlier, buckets, collective, .. } = self;
        let Some(buckets) = buckets else {
            return Ok(network.train_pass(draws, label_smoothing, global_batch)?);
        };
        let mut begin = |device: &Device, grads: &mut Storage, run: Span| match earlier {
            Some(earlier) => collective.begin_in_order(device, earlier, grads, run),
            None => collective.begin_sum(device, grads, run),
        };
        buckets.begin();
        network.train_pass_by_layers(draws, label_smoothing, global_batch, |device, grads, layer| {
            buckets.passed(layer).iter().try_for_each(|run| {
                device.finish_grads(grads, *run)?;
                Ok::<_, Error>(begin(device, grads, *run)?)
            })
        })?;
        // Without samples no layer was passed, and zeros are in place.
        let device = network.device().clone();
        let grads = &mut network.arena_mut().grads;
        buckets.rest().iter().try_for_each(|run| Ok(begin(&device, grads, *run)?))
    }
}
