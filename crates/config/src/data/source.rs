//! The options that name the data: a data set, a folder or file, a table of labels, or a folder for each split.

use super::formats;
use crate::{DataSet, Error, Result};
use std::path::{Path, PathBuf};
use towers_options::message;

/// The keys of the options that name the data together.
pub const DATA_SOURCE: [&str; 7] = [
    "data.dataset",
    "data.labels",
    "data.label_columns",
    "data.label_separator",
    "data.train_dir",
    "data.val_dir",
    "data.test_dir",
];

impl DataSet {
    /// The key of the option that names the data, and its value.
    pub fn source(&self) -> (&'static str, String) {
        match (&self.labels, &self.train_dir) {
            (Some(file), _) => ("data.labels", file.display().to_string()),
            (None, Some(folder)) => ("data.train_dir", folder.display().to_string()),
            (None, None) => ("data.dataset", self.dataset.clone()),
        }
    }

    /// Forgets the data, so that an option can name others. Whether a table of labels is named decides if its columns stay.
    pub fn forget_source(&mut self, is_table: bool) {
        let blank = DataSet::default();
        self.dataset = blank.dataset;
        self.paths().into_iter().for_each(|(_, path)| *path = None);
        if !is_table {
            (self.label_columns, self.label_separator) = (blank.label_columns, blank.label_separator);
        }
    }

    /// The paths that name data, with the keys of their options.
    pub fn paths(&mut self) -> [(&'static str, &mut Option<PathBuf>); 4] {
        let DataSet { labels, train_dir, val_dir, test_dir, .. } = self;
        [
            ("data.labels", labels),
            ("data.train_dir", train_dir),
            ("data.val_dir", val_dir),
            ("data.test_dir", test_dir),
        ]
    }

    /// Whether both name the same data, by whatever paths.
    pub fn is_same_source(&self, other: &DataSet) -> bool {
        let same = |one: &Path, other: &Path| {
            let [one_real, other_real] = [one, other].map(std::fs::canonicalize);
            one == other || one_real.is_ok_and(|one| other_real.is_ok_and(|other| one == other))
        };
        let ((key, one), (other_key, other)) = (self.source(), other.source());
        key == other_key && same(Path::new(&one), Path::new(&other))
    }

    /// Whether the images come from files of the user, in folders or a table of labels.
    pub fn is_of_files(&self) -> bool {
        self.has_own_files() || Path::new(&self.dataset).is_dir()
    }

    /// Whether other options than `data.dataset` name the data.
    pub(crate) fn has_own_files(&self) -> bool {
        self.labels.is_some() || self.train_dir.is_some()
    }

    /// Whether `data.dataset` names a folder that a table of labels is about.
    pub(crate) fn table_folder(&self) -> Option<&str> {
        (self.dataset != DataSet::default().dataset).then_some(&self.dataset)
    }

    /// Checks that the options name one source of data.
    pub(crate) fn check_source(&self) -> Result<()> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let columns = Some(self.label_columns.join(",")).filter(|names| !names.is_empty());
        let separator = self.label_separator.as_ref().map(|separator| format!("`{separator}`"));
        let dataset = self.table_folder().map(|name| format!("`{name}`"));
        let (labels, train_dir) = (self.labels.is_some(), self.train_dir.is_some());
        for (key, value, with, other, given) in [
            ("data.label_columns", columns, "without", "data.labels", !labels),
            ("data.label_separator", separator, "without", "data.labels", !labels),
            ("data.val_dir", path(&self.val_dir), "without", "data.train_dir", !train_dir),
            ("data.test_dir", path(&self.test_dir), "without", "data.train_dir", !train_dir),
            ("data.labels", path(&self.labels), "with", "data.train_dir", train_dir),
            ("data.dataset", dataset, "with", "data.train_dir", train_dir),
        ] {
            if let Some(value) = value.filter(|_| given) {
                return Err(Error::option(key, value, message!("left out {with} ", [other])));
            }
        }
        if let [column] = &self.label_columns[..] {
            let accepted = "the column of the pictures and that of their classes, as in image,label";
            return Err(Error::option("data.label_columns", column, accepted));
        }
        if self.label_separator.as_ref().is_some_and(String::is_empty) {
            return Err(Error::option("data.label_separator", "empty", "a text, such as a space"));
        }
        match self.table_folder().filter(|name| labels && formats::names().any(|known| known == *name)) {
            None => Ok(()),
            Some(name) => {
                let accepted = message!("left out with ", ["data.labels"], ", or the folder of its pictures");
                Err(Error::option("data.dataset", format!("`{name}`"), accepted))
            }
        }
    }

    /// The first path that leads to no file or folder of its kind, with the key of its option.
    fn missing(&self) -> Option<(&'static str, PathBuf)> {
        let mut own = self.clone();
        let missing = |(key, path): (&'static str, &mut Option<PathBuf>)| {
            let there = |path: &PathBuf| if key == "data.labels" { path.is_file() } else { path.is_dir() };
            Some((key, path.take().filter(|path| !there(path))?))
        };
        let folder =
            self.table_folder().filter(|folder| self.labels.is_some() && !Path::new(folder).is_dir());
        let folder = folder.map(|folder| ("data.dataset", PathBuf::from(folder)));
        own.paths().into_iter().find_map(missing).or(folder)
    }

    /// Refuses a table or a folder that does not exist.
    pub(crate) fn check_files(&self) -> Result<()> {
        let Some((key, path)) = self.missing() else { return Ok(()) };
        let kind = if key == "data.labels" { "the path of a CSV file" } else { "a folder" };
        Err(Error::option(key, path.display(), kind))
    }

    /// Refuses a folder or a file that no longer exists. `named_by` is its source, such as `the run's
    /// config.json`.
    ///
    /// # Errors
    /// [`Error::Moved`].
    pub fn check_folder(&self, named_by: &'static str) -> Result<()> {
        let dataset = || (self.found().is_none()).then(|| ("data.dataset", PathBuf::from(&self.dataset)));
        match self.missing().or_else(dataset) {
            Some((option, folder)) => Err(Error::Moved { folder, option, named_by }),
            None => Ok(()),
        }
    }
}
