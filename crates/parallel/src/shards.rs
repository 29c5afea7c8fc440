use crate::slice_batch;
use core::ops::Range;

/// The shards that every batch is cut into, and which of them are one replica's.
///
/// A shard is what one pass takes. By default every replica has one. With more shards than replicas their number is a property
/// of the run, not of its devices: each replica has some of them, one after the other, and the results are those of the
/// shards, whoever computed them.
///
/// ```
/// use parallel::Shards;
///
/// // Five shards on three devices: the last one has two of them. Of a batch of 12 the last shard has four samples.
/// let shards = Shards::new(5, 3, 2);
/// assert_eq!((shards.own(), shards.own_rows(12)), (3..5, 6..12));
/// assert_eq!(shards.own().map(|shard| shards.rows(12, shard)).collect::<Vec<_>>(), [6..8, 8..12]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    total: usize,
    own: Range<usize>,
}

impl Shards {
    /// The shards, `total` over all, of replica `rank` of `world`: as many as the others have, or one more.
    ///
    /// No result depends on who has which, so they are shared out evenly, other than samples: all wait for who has most.
    ///
    /// # Panics
    /// If `rank` is not below `world`.
    pub fn new(total: usize, world: usize, rank: usize) -> Self {
        assert!(rank < world, "replica {rank} of {world}");
        Shards { total, own: total * rank / world..total * (rank + 1) / world }
    }

    /// How many there are over all replicas.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The numbers of this replica's.
    pub fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// The samples of a batch of `batch` that are in shard `shard`.
    ///
    /// # Panics
    /// If `shard` is not below the number of shards.
    pub fn rows(&self, batch: usize, shard: usize) -> Range<usize> {
        slice_batch(batch, self.total, shard)
    }

    /// The samples of a batch of `batch` that are in this replica's shards: one run.
    pub fn own_rows(&self, batch: usize) -> Range<usize> {
        match self.own().last() {
            Some(last) => self.rows(batch, self.own.start).start..self.rows(batch, last).end,
            None => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_share_out_the_shards_in_order() {
        for (total, world) in [(1, 1), (4, 1), (4, 3), (5, 4), (8, 4), (4, 4)] {
            for batch in [0, 1, 3, 12, 64] {
                let (mut shard, mut row) = (0, 0);
                for rank in 0..world {
                    let shards = Shards::new(total, world, rank);
                    assert!([total / world, total.div_ceil(world)].contains(&shards.own().len()));
                    assert_eq!(shards.own_rows(batch).start, row);
                    for own in shards.own() {
                        assert_eq!((own, shards.rows(batch, own).start), (shard, row));
                        (shard, row) = (own + 1, shards.rows(batch, own).end);
                    }
                    assert_eq!(shards.own_rows(batch).end, row);
                }
                assert_eq!((shard, row), (total, batch));
            }
        }
    }

    #[test]
    fn a_replica_without_shards_has_no_samples() {
        let shards = Shards::new(2, 3, 0);
        assert_eq!((shards.own(), shards.own_rows(9)), (0..0, 0..0));
    }
}
