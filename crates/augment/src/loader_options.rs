//! How a loader cuts a set into batches.

use crate::Error;
use std::ops::Range;

/// Which rows of every batch to load: all of them, or one replica's slice.
///
/// Draws belong to a sample, not to its place in a batch, so slices put together are the whole batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// The whole batch.
    #[default]
    All,
    /// These rows, as far as a short last batch has them.
    Range(Range<usize>),
    /// The slice of replica `index` of `of`, as Keras' `multi_gpu_model` cuts it: `batch / of` rows each,
    /// and the last takes what remains.
    Share {
        /// The replica, from 0.
        index: usize,
        /// The number of replicas.
        of: usize,
    },
    /// The slices `which` of `of`, each cut as for [`Rows::Share`]: for a replica with several of them.
    Shares {
        /// The slices, from 0.
        which: Range<usize>,
        /// The number of slices.
        of: usize,
    },
}

impl Rows {
    /// The rows to load of a batch of `len`.
    pub fn of(&self, len: usize) -> Range<usize> {
        let share = |index: usize, of: usize| {
            let share = len / of;
            index * share..if index + 1 == of { len } else { (index + 1) * share }
        };
        match *self {
            Rows::All => 0..len,
            Rows::Range(Range { start, end }) => start.min(len)..end.min(len),
            Rows::Share { index, of } => share(index, of),
            Rows::Shares { which: Range { start, end }, of } if start < end => {
                share(start, of).start..share(end - 1, of).end
            }
            Rows::Shares { .. } => 0..0,
        }
    }
}

/// How a [`Loader`](crate::Loader) goes through a set. The defaults are those of Keras' `flow`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoaderOptions {
    /// Images in a batch (default 32). With [`Rows`] this is still the whole batch.
    pub batch_size: usize,
    /// The seed of the order and of all draws (default 0).
    pub seed: u64,
    /// A new order each epoch (default: on); otherwise the order of the set.
    pub shuffle: bool,
    /// Augment (default: on); otherwise only the steps that are not random.
    pub augment: bool,
    /// Leave out a last batch that is not full (default: off): Keras' `steps_per_epoch = n // batch_size`.
    pub drop_last: bool,
    /// Threads that make batches (default 1); with 0 the caller makes each batch as it asks for it.
    pub workers: usize,
    /// Batches that the workers may be ahead (default 4).
    pub prefetch: usize,
    /// Which rows of every batch to load (default: all).
    pub rows: Rows,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions {
            batch_size: 32,
            seed: 0,
            shuffle: true,
            augment: true,
            drop_last: false,
            workers: 1,
            prefetch: 4,
            rows: Rows::All,
        }
    }
}

impl LoaderOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of images in a batch.
    pub fn batch_size(self, batch_size: usize) -> Self {
        Self { batch_size, ..self }
    }

    /// Sets the seed of the order and of all draws.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// For evaluation: the set in its own order, without augmentation.
    pub fn evaluation(self) -> Self {
        Self { shuffle: false, augment: false, ..self }
    }

    /// A new order each epoch, or the order of the set.
    pub fn shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// With or without augmentation.
    pub fn augment(self, augment: bool) -> Self {
        Self { augment, ..self }
    }

    /// Leaves out a last batch that is not full.
    pub fn drop_last(self, drop_last: bool) -> Self {
        Self { drop_last, ..self }
    }

    /// Sets the number of worker threads.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Sets how many batches the workers may be ahead.
    pub fn prefetch(self, prefetch: usize) -> Self {
        Self { prefetch, ..self }
    }

    /// Loads only these rows of every batch.
    pub fn rows(self, rows: Rows) -> Self {
        Self { rows, ..self }
    }

    /// The order in which `epoch` goes through a set of `len` samples: at most 2^32 - 1.
    pub fn order(&self, epoch: u64, len: usize) -> Vec<u32> {
        let len = len as u32;
        if self.shuffle { philox::permutation(self.seed, epoch, len) } else { (0..len).collect() }
    }

    /// Batches in an epoch of a set of `len` samples.
    pub fn steps(&self, len: usize) -> usize {
        if self.drop_last { len / self.batch_size } else { len.div_ceil(self.batch_size) }
    }

    /// The samples of batch `step`, all rows of it, as places in the epoch's [`order`](Self::order).
    pub fn batch(&self, step: usize, len: usize) -> Range<usize> {
        let start = step.saturating_mul(self.batch_size).min(len);
        start..start.saturating_add(self.batch_size).min(len)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.batch_size == 0 {
            return Err(Error::option("batch_size", 0, "at least 1"));
        }
        if self.prefetch == 0 || self.prefetch > 1024 {
            return Err(Error::option("prefetch", self.prefetch, "from 1 to 1024 batches"));
        }
        if self.workers > 1024 {
            return Err(Error::option("workers", self.workers, "at most 1024 threads"));
        }
        let rows = || format!("{:?}", self.rows);
        match &self.rows {
            Rows::Range(range) if range.start > range.end => {
                Err(Error::option("rows", rows(), "a range that doesn't end before it begins"))
            }
            Rows::Share { index, of } if index >= of => {
                Err(Error::option("rows", rows(), "a share with `index` below `of`"))
            }
            Rows::Shares { which, of } if which.start > which.end || which.end > *of => {
                Err(Error::option("rows", rows(), "shares of which the last one is below `of`"))
            }
            _ => Ok(()),
        }
    }
}
