//! The description of a callback that a configuration turns on.

use crate::{Observer, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use towers_options::Table;

/// The options of a callback that is on if a configuration has its table.
pub(crate) trait Callback: Default + Serialize {
    /// Its table in a configuration.
    const TABLE: Table;

    /// Whether it is called before the checkpoints are saved: a resume does not write its files again.
    const BEFORE_CHECKPOINTS: bool = false;

    /// Checks the options.
    fn check(&self) -> Result<()> {
        Ok(towers_options::check(self, &Self::TABLE)?)
    }

    /// The metrics that it needs, each with the key of the option that names it.
    fn metrics(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The file or folder that it writes outside of the run's folder.
    fn outside(&self) -> Option<Outside<'_>> {
        None
    }

    /// The path of [`outside`](Self::outside).
    fn outside_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// Its observer.
    fn build(&self, run: &Run<'_>) -> Result<Box<dyn Observer>>;
}

/// A file or folder that a run writes outside of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outside<'a> {
    /// The key of the option that names it.
    pub key: &'static str,
    /// The file or folder.
    pub path: &'a Path,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// The run whose files the callbacks write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Run<'a> {
    /// Its folder.
    pub folder: &'a Path,
    /// The network and the data set, as in `minigooglenet on CIFAR-10`: the title of the curves.
    pub title: &'a str,
    /// Whether the run in the folder is resumed, and its files are continued.
    pub resumed: bool,
}

impl<'a> Run<'a> {
    /// A new run in this folder. The title of its curves names the network and the data set.
    pub fn new(folder: &'a Path, title: &'a str) -> Self {
        Run { folder, title, resumed: false }
    }

    /// The same run, whose files are continued if it is resumed.
    pub fn resumed(self, resumed: bool) -> Self {
        Run { resumed, ..self }
    }
}
