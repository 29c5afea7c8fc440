use crate::Weights;
use core::ops::Range;

/// The part of a batch of `n` samples that belongs to replica `part` of `parts`. Each has `n / parts`
/// samples, and the last takes the remainder too, as in Keras' `multi_gpu_model` and its tutorials'
/// `slice_batch`.
///
/// ```
/// use towers_parallel::slice_batch;
/// assert_eq!((0..3).map(|part| slice_batch(100, 3, part)).collect::<Vec<_>>(), [0..33, 33..66, 66..100]);
/// ```
///
/// # Panics
/// If `part` is not below `parts`.
pub fn slice_batch(n: usize, parts: usize, part: usize) -> Range<usize> {
    assert!(part < parts, "part {part} of {parts} parts");
    let len = n / parts;
    let end = if part == parts - 1 { n } else { (part + 1) * len };
    part * len..end
}

/// The shards of every batch, and which of them belong to one replica.
///
/// A shard is the batch of one pass. By default every replica has one. With more shards than replicas, the
/// number of shards is a property of the run, not of its devices. Each replica computes some of them, one
/// after the other, and the results depend on the shards alone.
///
/// ```
/// use towers_parallel::Shards;
///
/// // Five shards on three devices: the last one has two of them. Of a batch of 12 the last shard has four samples.
/// let shards = Shards::new(5, 3, 2);
/// assert_eq!((shards.own(), shards.own_rows(12)), (3..5, 6..12));
/// assert_eq!(shards.own().map(|shard| shards.rows(12, shard)).collect::<Vec<_>>(), [6..8, 8..12]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Shards {
    cut: Cut,
    /// The number of shards of each replica.
    counts: Vec<usize>,
    rank: usize,
}

/// How a batch is cut into shards.
#[derive(Clone, Debug, PartialEq)]
enum Cut {
    /// Into this number of shards, as [`slice_batch`] does.
    Even(usize),
    /// A slice for each replica, in proportion to its weight, and each slice into this number of shards, as
    /// [`slice_batch`] does.
    Weighted(Weights, usize),
}

impl Shards {
    /// The shards of replica `rank` of `world`, out of `total`: as many as the others have, or one more.
    ///
    /// Results don't depend on this division, so shards are divided evenly: all wait for the replica with the
    /// most.
    ///
    /// # Panics
    /// If `rank` is not below `world`.
    pub fn new(total: usize, world: usize, rank: usize) -> Self {
        assert!(rank < world, "replica {rank} of {world}");
        let first = |rank| total * rank / world;
        let counts = (0..world).map(|rank| first(rank + 1) - first(rank)).collect();
        Shards { cut: Cut::Even(total), counts, rank }
    }

    /// The same shards, and so the same results, on replicas of unequal speed. Each has shards in proportion
    /// to its weight, at least one if there are enough.
    ///
    /// ```
    /// use towers_parallel::{Shards, Weights};
    ///
    /// let weights: Weights = "3,1".parse()?;
    /// assert_eq!(Shards::shared_out(8, &weights, 0).own(), 0..6);
    /// # Ok::<(), towers_parallel::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there is no replica `rank`.
    pub fn shared_out(total: usize, weights: &Weights, rank: usize) -> Self {
        assert!(rank < weights.len(), "replica {rank} of {}", weights.len());
        let mut counts = weights.share_out(total);
        while let Some(idle) = counts.iter().position(|count| *count == 0) {
            match counts.iter_mut().max() {
                Some(most) if *most > 1 => *most -= 1,
                _ => break,
            }
            counts[idle] = 1;
        }
        Shards { cut: Cut::Even(total), counts, rank }
    }

    /// Cuts every batch into a slice for each replica, in proportion to its weight, and that into `each`
    /// shards of replica `rank`'s.
    ///
    /// ```
    /// use towers_parallel::{Shards, Weights};
    ///
    /// let weights = "3,1".parse::<Weights>()?;
    /// let shards = Shards::weighted(2, &weights, 0);
    /// assert_eq!((shards.own_rows(100), shards.rows(100, 0), shards.rows(100, 2)), (0..75, 0..37, 75..87));
    /// # Ok::<(), towers_parallel::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there is no replica `rank`.
    pub fn weighted(each: usize, weights: &Weights, rank: usize) -> Self {
        assert!(rank < weights.len(), "replica {rank} of {}", weights.len());
        let counts = vec![each; weights.len()];
        Shards { cut: Cut::Weighted(weights.clone(), each), counts, rank }
    }

    /// The number of shards over all replicas.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The number of shards of each replica.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// This replica's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The numbers of this replica's shards.
    pub fn own(&self) -> Range<usize> {
        let start = self.counts[..self.rank].iter().sum();
        start..start + self.counts[self.rank]
    }

    /// The samples of a batch of `batch` that are in shard `shard`.
    ///
    /// # Panics
    /// If `shard` is not below the number of shards.
    pub fn rows(&self, batch: usize, shard: usize) -> Range<usize> {
        match &self.cut {
            Cut::Even(total) => slice_batch(batch, *total, shard),
            Cut::Weighted(weights, each) => {
                let slice = weights.slice(batch, shard / each);
                let rows = slice_batch(slice.len(), *each, shard % each);
                slice.start + rows.start..slice.start + rows.end
            }
        }
    }

    /// The samples in the largest of this replica's shards of a batch of `batch`.
    pub fn largest(&self, batch: usize) -> usize {
        self.own().map(|shard| self.rows(batch, shard).len()).max().unwrap_or(0)
    }

    /// The samples of a batch of `batch` that are in this replica's shards: one run.
    pub fn own_rows(&self, batch: usize) -> Range<usize> {
        match self.own().last() {
            Some(last) => self.rows(batch, self.own().start).start..self.rows(batch, last).end,
            None => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `slice_batch` of the tutorial "Training with multiple GPUs using Keras": 10 samples on 4 GPUs.
    #[test]
    fn the_last_takes_the_remainder() {
        let lens: Vec<usize> = (0..4).map(|part| slice_batch(10, 4, part).len()).collect();
        assert_eq!(lens, [2, 2, 2, 4]);
        assert_eq!(slice_batch(3, 4, 3), 0..3);
    }

    #[test]
    fn replicas_share_out_the_shards_in_order() {
        for (total, world) in [(1, 1), (4, 1), (4, 3), (5, 4), (8, 4), (4, 4), (7, 2)] {
            for batch in [0, 1, 3, 12, 64, 100] {
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

    /// The shards of all replicas are those of a single replica, in order.
    #[test]
    fn weights_say_who_has_how_many_shards() {
        for (weights, total, expected) in [
            ("1,1", 5, &[3, 2][..]),
            ("3,1", 8, &[6, 2]),
            ("100,1", 4, &[3, 1]),
            ("1,100,1", 3, &[1, 1, 1]),
            ("1,1,5", 2, &[1, 0, 1]),
        ] {
            let weights: Weights = weights.parse().unwrap();
            let shards: Vec<Shards> =
                (0..weights.len()).map(|rank| Shards::shared_out(total, &weights, rank)).collect();
            let counts: Vec<usize> = shards.iter().map(|shards| shards.own().len()).collect();
            assert_eq!(counts, expected, "{weights}");
            assert_eq!(
                shards.iter().flat_map(Shards::own).collect::<Vec<_>>(),
                (0..total).collect::<Vec<_>>()
            );
            let alone = Shards::new(total, 1, 0);
            assert!((0..total).all(|shard| shards[0].rows(30, shard) == alone.rows(30, shard)));
        }
    }

    #[test]
    fn weighted_slices_cover_the_batch_in_order() {
        let weights: Weights = "3,1,2.5".parse().unwrap();
        for (each, batch) in [(1, 64), (1, 2), (2, 65), (3, 64), (3, 5), (2, 0)] {
            let (mut row, mut shard) = (0, 0);
            for rank in 0..3 {
                let shards = Shards::weighted(each, &weights, rank);
                assert_eq!((shards.total(), shards.own().len()), (3 * each, each));
                assert_eq!(shards.own_rows(batch), weights.slice(batch, rank));
                let mut largest = 0;
                for own in shards.own() {
                    let rows = shards.rows(batch, own);
                    assert_eq!((own, rows.start), (shard, row));
                    (shard, row, largest) = (own + 1, rows.end, largest.max(rows.len()));
                }
                assert_eq!(shards.largest(batch), largest);
            }
            assert_eq!((shard, row), (3 * each, batch));
        }
    }

    #[test]
    fn a_replica_without_shards_has_no_samples() {
        let shards = Shards::new(2, 3, 0);
        assert_eq!((shards.own(), shards.own_rows(9)), (0..0, 0..0));
    }
}
