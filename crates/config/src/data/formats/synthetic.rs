use super::format::{Format, Request};
use crate::{DataLimit, Result};
use towers_cifar::{SYNTHETIC_TEST, SYNTHETIC_TRAIN, synthetic};
use towers_dataset::Dataset;

/// Drawn figures.
pub(crate) struct Synthetic;

/// The seed: the data set is the same in every run, and only training depends on the run's seed.
const SEED: u64 = 0;

impl Format for Synthetic {
    fn names(&self) -> &'static [&'static str] {
        &["synthetic"]
    }

    fn limits(&self) -> bool {
        true
    }

    fn is_scaled(&self) -> bool {
        false
    }

    fn read(&self, Request { set, files, .. }: Request<'_>) -> Result<Dataset> {
        let limit = |limit: Option<DataLimit>, all| limit.map_or(all, |limit| limit.of(all));
        let (train, test) =
            (limit(set.limit_train, SYNTHETIC_TRAIN), limit(files.limit_test, SYNTHETIC_TEST));
        Ok(synthetic(SEED, train, test))
    }
}
