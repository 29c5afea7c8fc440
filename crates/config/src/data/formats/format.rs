use crate::Progress;
use crate::{DataFiles, DataSet, Result};
use std::path::Path;
use towers_cifar::SIDE;
use towers_dataset::{CHANNELS, Dataset};

/// A format of data: what names it, or which folders and files have it, and how it is read.
pub(crate) trait Format: Sync {
    /// The values of `data.dataset` that name it; none of a format of folders and files.
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    /// What folders and files have it, in words.
    fn path(&self) -> Option<&'static str> {
        None
    }

    /// Whether the folder or file at this path has this format.
    fn is_at(&self, _path: &Path) -> bool {
        false
    }

    /// Height, width and channels of the images, unless others are asked for.
    fn shape(&self) -> [usize; 3] {
        [SIDE, SIDE, CHANNELS]
    }

    /// Whether its images are scaled to any size.
    fn is_scaled(&self) -> bool {
        true
    }

    /// Whether it applies the limits on the number of samples itself.
    fn limits(&self) -> bool {
        false
    }

    /// Whether each picture has its own file: they are resized in any way, and decoded on demand.
    fn streams(&self) -> bool {
        false
    }

    /// The recipe of a run that names none, and why it is not that of the tutorial.
    fn recipe(&self) -> (&'static str, Option<&'static str>) {
        match self.names() {
            [] => ("adam", Some("for pictures of your own")),
            _ => ("minigooglenet", None),
        }
    }

    /// The data. Limits may be left to the caller.
    fn read(&self, request: Request<'_>) -> Result<Dataset>;
}

/// A request to read data.
pub(crate) struct Request<'a> {
    pub(crate) set: &'a DataSet,
    pub(crate) files: &'a DataFiles,
    /// Whether a folder without splits is for testing as a whole.
    pub(crate) whole: bool,
    pub(crate) listener: &'a mut dyn FnMut(Progress<'_>),
}
