use super::format::{Format, Request};
use crate::{Result, memory};
use std::path::Path;
use towers_dataset::Dataset;

/// A file of NumPy's arrays `x_train`, `y_train`, `x_test`, `y_test`, and maybe `x_val` and `y_val`.
pub(crate) struct Npz;

impl Format for Npz {
    fn path(&self) -> Option<&'static str> {
        Some("an .npz file of x_train, y_train, x_test and y_test")
    }

    fn is_at(&self, path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npz")) && path.is_file()
    }

    fn read(&self, Request { set, .. }: Request<'_>) -> Result<Dataset> {
        // Vectors that grow may take twice their length.
        let most = memory::available().map_or(u64::MAX, |free| free / 2);
        Ok(towers_cifar::npz::read_file(&set.dataset, most)?)
    }
}
