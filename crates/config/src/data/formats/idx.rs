use super::format::{Format, Request};
use crate::Result;
use std::path::Path;
use towers_cifar::idx;
use towers_dataset::Dataset;

/// A folder with four `idx` files.
pub(crate) struct Idx;

impl Format for Idx {
    fn path(&self) -> Option<&'static str> {
        Some("a folder of idx files")
    }

    fn is_at(&self, path: &Path) -> bool {
        idx::is_in(path)
    }

    fn read(&self, Request { set, .. }: Request<'_>) -> Result<Dataset> {
        Ok(idx::read_dir(&set.dataset)?)
    }
}
