//! Where the names and the classes of pictures come from.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::listing::Listing;
use crate::splits::Splits;
use crate::table::Table;

/// Where the list of pictures and their classes comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A folder of class folders, or of splits that hold class folders.
    ClassFolders(PathBuf),
    /// Folders of class folders, one for each split.
    SplitFolders { train: PathBuf, validation: Option<PathBuf>, test: Option<PathBuf> },
    /// A table of pictures and their classes.
    Table(Table),
}

impl Source {
    /// The pictures; with `whole` as for [`Pictures::whole`](crate::Pictures::whole).
    pub(crate) fn list(&self, whole: bool) -> Result<Listing> {
        match self {
            Source::ClassFolders(dir) => Listing::of(dir, Splits::of(dir)?, whole),
            Source::SplitFolders { train, validation, test } => {
                let splits = Splits::separate(train, validation.as_deref(), test.as_deref())?;
                Listing::of(train, splits, whole)
            }
            Source::Table(table) => table.list(whole),
        }
    }

    /// The folder that messages name pictures within.
    pub(crate) fn dir(&self) -> &Path {
        match self {
            Source::ClassFolders(dir) | Source::SplitFolders { train: dir, .. } => dir,
            Source::Table(table) => table.dir(),
        }
    }

    /// The name of the data set.
    pub(crate) fn name(&self) -> String {
        let path = if let Source::Table(table) = self { table.file() } else { self.dir() };
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }

    /// An error about one class.
    pub(crate) fn refused(&self, class: &str, reason: &str) -> Error {
        match self {
            Source::Table(table) => Error::table(table.file(), format!("the class `{class}`: {reason}")),
            folders => Error::ClassFolders { path: folders.dir().join(class), reason: reason.to_owned() },
        }
    }
}
