//! The formats of data, a file each. A new one is its file, its `mod`, a line of [`FORMATS`], and a word in the help of `data.dataset`.

mod format;
mod idx;
mod npz;
mod official;
mod pictures;
mod synthetic;

use crate::DataSet;
pub(crate) use format::{Format, Request};
use idx::Idx;
use npz::Npz;
use official::Official;
use pictures::Pictures;
use std::path::Path;
use synthetic::Synthetic;
use towers_cifar::Kind;

/// Folders and files have the first of these formats that is there.
const FORMATS: [&dyn Format; 8] = [
    &Official { names: &["auto", "cifar10"], kind: Kind::Cifar10 },
    &Official { names: &["cifar100"], kind: Kind::Cifar100 },
    &Official { names: &["mnist"], kind: Kind::Mnist },
    &Official { names: &["fashion-mnist"], kind: Kind::FashionMnist },
    &Synthetic,
    &Npz,
    &Idx,
    &Pictures,
];

/// All names of data sets.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().flat_map(Format::names).copied()
}

/// What folders and files have a format, in words.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().filter_map(Format::path)
}

/// The format of this name, or of this folder or file.
pub(crate) fn find(dataset: &str) -> Option<&'static dyn Format> {
    let named = FORMATS.into_iter().find(|format| format.names().contains(&dataset));
    named.or_else(|| FORMATS.into_iter().find(|format| format.is_at(Path::new(dataset))))
}

impl DataSet {
    /// Its format, if there is data.
    pub(crate) fn found(&self) -> Option<&'static dyn Format> {
        if self.has_own_files() { Some(&Pictures) } else { find(&self.dataset) }
    }

    /// Its format: that of pictures if there is none.
    pub(crate) fn format(&self) -> &'static dyn Format {
        self.found().unwrap_or(&Pictures)
    }

    /// Whether this is a named data set, not a folder or a file.
    pub fn is_named(&self) -> bool {
        !self.has_own_files() && names().any(|name| name == self.dataset)
    }

    /// The recipe of a run that names none, and why it is not that of the tutorial.
    pub(crate) fn default_recipe(&self) -> (&'static str, Option<&'static str>) {
        self.format().recipe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_help_and_no_folder_takes_one() {
        let place = tempfile::tempdir().unwrap();
        let help = DataSet::OPTIONS.iter().find(|option| option.name == "dataset").unwrap().help();
        for name in names() {
            assert!(help.contains(name), "{name}");
            assert_eq!(names().filter(|other| *other == name).count(), 1, "{name}");
            assert!(find(name).is_some_and(|format| format.names().contains(&name)));
        }
        let folder = place.path().to_str().unwrap();
        assert!(find(folder).is_some_and(|format| format.streams()), "class folders");
        std::fs::write(place.path().join("t10k-labels-idx1-ubyte.gz"), "").unwrap();
        assert!(find(folder).is_some_and(|format| !format.streams()), "idx files");
        assert!(find("no/such/folder").is_none() && find("no/such.npz").is_none());
        let file = place.path().join("scans.npz");
        std::fs::write(&file, "").unwrap();
        assert!(
            find(file.to_str().unwrap())
                .is_some_and(|format| format.path().is_some_and(|path| path.contains("npz")))
        );
    }
}
