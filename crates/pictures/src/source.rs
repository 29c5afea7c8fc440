//! Where the names and the classes of pictures come from.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::listing::Listing;

/// What says which pictures there are, and which class each has.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A folder of class folders, or of splits that hold class folders.
    ClassFolders(PathBuf),
}

impl Source {
    /// The pictures; with `whole` as for [`Pictures::whole`](crate::Pictures::whole).
    pub(crate) fn list(&self, whole: bool) -> Result<Listing> {
        match self {
            Source::ClassFolders(dir) => Listing::of(dir, whole),
        }
    }

    /// The folder that messages name pictures within.
    pub(crate) fn dir(&self) -> &Path {
        match self {
            Source::ClassFolders(dir) => dir,
        }
    }

    /// The name of the data set.
    pub(crate) fn name(&self) -> String {
        let path = self.dir();
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }
}
