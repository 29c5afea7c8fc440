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
    /// As many samples of each class in an epoch (default: off). Samples of rare classes are repeated, each time with other random
    /// steps, and some of the frequent ones are left out. The length of an epoch does not change; its order is always new.
    pub balanced: bool,
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
            balanced: false,
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
        Self { shuffle: false, balanced: false, augment: false, ..self }
    }

    /// A new order each epoch, or the order of the set.
    pub fn shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// As many samples of each class in an epoch, or each sample once.
    pub fn balanced(self, balanced: bool) -> Self {
        Self { balanced, ..self }
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

    /// The order in which `epoch` goes through samples with these labels: at most 2^32 - 1. Where a sample is repeated, the length of
    /// the set is added to its number each time: the sum is the number that its draws are made with.
    pub fn order(&self, epoch: u64, labels: &[u16]) -> Vec<u32> {
        let len = labels.len() as u32;
        match (self.balanced, self.shuffle) {
            (true, _) => balanced(self.seed, epoch, labels),
            (false, true) => towers_philox::permutation(self.seed, epoch, len),
            (false, false) => (0..len).collect(),
        }
    }

    /// The sample that another one is mixed with, which [`Pipeline::mix`](crate::Pipeline::mix) has drawn: of a balanced epoch
    /// the one at that place of its order.
    pub fn partner(&self, order: &[u32], drawn: u32) -> u32 {
        if self.balanced { order[drawn as usize] } else { drawn }
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

/// Numbers of epochs that no epoch has.
const NO_EPOCH: u64 = 1 << 63;

/// An order with as many samples of each class. Which classes get one more, where the number of samples is no multiple of
/// theirs, goes round with the epochs.
fn balanced(seed: u64, epoch: u64, labels: &[u16]) -> Vec<u32> {
    let len = labels.len() as u32;
    let mut classes = vec![Vec::new(); labels.iter().max().map_or(0, |most| usize::from(*most) + 1)];
    for sample in towers_philox::permutation(seed, epoch, len) {
        classes[usize::from(labels[sample as usize])].push(sample);
    }
    classes.retain(|samples| !samples.is_empty());
    let (count, total) = (classes.len(), labels.len());
    let more = total % count.max(1);
    let first = (epoch as usize % count.max(1)) * more % count.max(1);
    let rounds = u32::MAX / len.max(1);
    let all: Vec<u32> = classes
        .iter()
        .enumerate()
        .flat_map(|(class, samples)| {
            let own = total / count + usize::from((class + count - first) % count < more);
            let round = move |k: usize| (k / samples.len()) as u32 % rounds * len;
            (0..own).map(move |k| samples[k % samples.len()] + round(k))
        })
        .collect();
    towers_philox::permutation(seed, NO_EPOCH | epoch, len)
        .into_iter()
        .map(|place| all[place as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balanced_epoch_has_each_class_equally_often() {
        // 90 samples of the class 0, 2 of 2, 8 of 5.
        let labels: Vec<u16> = (0..100)
            .map(|k| {
                if k < 90 {
                    0
                } else if k < 92 {
                    2
                } else {
                    5
                }
            })
            .collect();
        let options = LoaderOptions::new().seed(3).balanced(true);
        let mut extra = [0; 6];
        for epoch in 0..3 {
            let order = options.order(epoch, &labels);
            assert_eq!((order.len(), &order), (100, &options.order(epoch, &labels)));
            let mut seen = order.clone();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 100, "each repetition has draws of its own");
            for class in [0, 2, 5] {
                let own = order.iter().filter(|&&sample| labels[sample as usize % 100] == class).count();
                assert!(own == 33 || own == 34);
                extra[usize::from(class)] += own - 33;
            }
            // Each of two samples stands for half of its class.
            assert!((16..=17).contains(&order.iter().filter(|&&sample| sample % 100 == 90).count()));
            assert_ne!(order, options.order(epoch + 1, &labels));
        }
        assert_eq!(extra, [1, 0, 1, 0, 0, 1], "each class has one more in turn");
        assert!(options.order(0, &[]).is_empty());
    }

    #[test]
    fn batches_of_nothing_make_no_steps() {
        for drop_last in [false, true] {
            let options = LoaderOptions::new().batch_size(0).drop_last(drop_last);
            assert_eq!((options.steps(10), options.batch(0, 10)), (0, 0..0));
        }
    }
}
