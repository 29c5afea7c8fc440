//! How a loader cuts a set into batches.

use crate::samples::Subset;
use crate::{Error, Layout};
use std::ops::Range;
#[cfg(feature = "png")]
use std::path::PathBuf;
use std::sync::Arc;

/// Which rows of every batch to load: all of them, or one replica's slice.
///
/// Draws belong to a sample, not to its place in a batch, so slices put together are the whole batch.
///
/// ```
/// use towers_augment::parts::Rows;
///
/// // The second of two replicas: half of every batch, also of a short last one.
/// let rows = Rows::by(|len| len / 2..len);
/// assert_eq!((rows.of(64), rows.of(7)), (32..64, 3..7));
/// ```
#[derive(Clone, Default)]
pub enum Rows {
    /// The whole batch.
    #[default]
    All,
    /// These rows, as far as a short last batch has them.
    Range(Range<usize>),
    /// The rows that a rule gives for a batch of so many, as far as it has them: see [`Rows::by`].
    By(Arc<dyn Fn(usize) -> Range<usize> + Send + Sync>),
}

impl Rows {
    /// The rows that `rule` gives for the number of rows in the whole batch. Who shares batches out over replicas has a rule
    /// for that, and knows best.
    pub fn by(rule: impl Fn(usize) -> Range<usize> + Send + Sync + 'static) -> Self {
        Rows::By(Arc::new(rule))
    }

    /// The rows to load of a batch of `len`.
    pub fn of(&self, len: usize) -> Range<usize> {
        let Range { start, end } = match self {
            Rows::All => 0..len,
            Rows::Range(rows) => rows.clone(),
            Rows::By(rule) => rule(len),
        };
        let end = end.min(len);
        start.min(end)..end
    }
}

impl core::fmt::Debug for Rows {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Rows::All => f.write_str("All"),
            Rows::Range(rows) => f.debug_tuple("Range").field(rows).finish(),
            Rows::By(_) => f.write_str("By(..)"),
        }
    }
}

/// How a [`Loader`](crate::Loader) goes through a set. The defaults are those of Keras' `flow`.
#[derive(Clone, Debug)]
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
    /// The order of a batch's axes (default: images, rows, columns, channels).
    pub layout: Layout,
    /// Which rows of every batch to load (default: all).
    pub rows: Rows,
    /// Which part of the set, if the pipeline has a [`validation_split`](crate::ImageDataGenerator::validation_split)
    /// (default: the whole set).
    pub subset: Option<Subset>,
    /// A folder that gets a picture of every image that is made (default: none). Needs the feature `png`.
    #[cfg(feature = "png")]
    pub save_to_dir: Option<PathBuf>,
    /// The beginning of those pictures' names (default: empty). Needs the feature `png`.
    #[cfg(feature = "png")]
    pub save_prefix: String,
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
            layout: Layout::Nhwc,
            rows: Rows::All,
            subset: None,
            #[cfg(feature = "png")]
            save_to_dir: None,
            #[cfg(feature = "png")]
            save_prefix: String::new(),
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

    /// Sets the order of a batch's axes.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Loads only these rows of every batch.
    pub fn rows(self, rows: Rows) -> Self {
        Self { rows, ..self }
    }

    /// Goes through this part of the set alone. Indices and draws count from its first sample.
    pub fn subset(self, subset: Subset) -> Self {
        Self { subset: Some(subset), ..self }
    }

    /// Writes a picture of every image that is made into this folder, as Keras does: its values stretched to 0..=255, called
    /// `PREFIX_INDEX_EPOCH.png`. The folder is made where it is missing. Needs the feature `png`.
    #[cfg(feature = "png")]
    pub fn save_to_dir(self, folder: impl Into<PathBuf>) -> Self {
        Self { save_to_dir: Some(folder.into()), ..self }
    }

    /// Sets the beginning of the pictures' names. Needs the feature `png`.
    #[cfg(feature = "png")]
    pub fn save_prefix(self, prefix: impl Into<String>) -> Self {
        Self { save_prefix: prefix.into(), ..self }
    }

    /// The order in which `epoch` goes through a set of `len` samples: at most 2^32 - 1.
    pub fn order(&self, epoch: u64, len: usize) -> Vec<u32> {
        let len = len as u32;
        if self.shuffle { towers_philox::permutation(self.seed, epoch, len) } else { (0..len).collect() }
    }

    /// Batches in an epoch of a set of `len` samples; none of 0 samples each, which no loader takes.
    pub fn steps(&self, len: usize) -> usize {
        match self.batch_size {
            0 => 0,
            batch if self.drop_last => len / batch,
            batch => len.div_ceil(batch),
        }
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
        match &self.rows {
            Rows::Range(range) if range.start > range.end => {
                let rows = format!("{:?}", self.rows);
                Err(Error::option("rows", rows, "a range that doesn't end before it begins"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_nothing_make_no_steps() {
        for drop_last in [false, true] {
            let options = LoaderOptions::new().batch_size(0).drop_last(drop_last);
            assert_eq!((options.steps(10), options.batch(0, 10)), (0, 0..0));
        }
    }
}
