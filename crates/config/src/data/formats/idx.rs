use super::format::{Format, Request};
use crate::Result;
use cifar::idx;
use dataset::Dataset;
use std::path::Path;

/// A folder with four `idx` files.
pub(crate) struct Idx;

impl Format for Idx {
    fn is_in(&self, folder: &Path) -> bool {
        idx::is_in(folder)
    }

    fn read(&self, Request { set, .. }: Request<'_>) -> Result<Dataset> {
        Ok(idx::read_dir(&set.dataset)?)
    }
}
