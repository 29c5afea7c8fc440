//! The options that name the data: a data set, a folder or file, or a table of labels.

use super::formats;
use crate::{DataSet, Error, Result};
use std::path::{Path, PathBuf};
use towers_options::message;

/// The keys of the options that name the data together.
pub const DATA_SOURCE: [&str; 4] =
    ["data.dataset", "data.labels", "data.label_columns", "data.label_separator"];

impl DataSet {
    /// The key of the option that names the data, and its value.
    pub fn source(&self) -> (&'static str, String) {
        match &self.labels {
            Some(file) => ("data.labels", file.display().to_string()),
            None => ("data.dataset", self.dataset.clone()),
        }
    }

    /// Forgets the data, so that an option can name others. Whether a table of labels is named decides if its columns stay.
    pub fn forget_source(&mut self, is_table: bool) {
        let blank = DataSet::default();
        (self.dataset, self.labels) = (blank.dataset, blank.labels);
        if !is_table {
            (self.label_columns, self.label_separator) = (blank.label_columns, blank.label_separator);
        }
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

    /// Whether the images come from files of the user, in a folder or a table of labels.
    pub fn is_of_files(&self) -> bool {
        self.labels.is_some() || Path::new(&self.dataset).is_dir()
    }

    /// Whether `data.dataset` names a folder that a table of labels is about.
    pub(crate) fn table_folder(&self) -> Option<&str> {
        (self.dataset != DataSet::default().dataset).then_some(&self.dataset)
    }

    /// Checks that the options name one source of data.
    pub(crate) fn check_source(&self) -> Result<()> {
        if self.labels.is_none() {
            for (key, value) in [
                ("data.label_columns", Some(self.label_columns.join(",")).filter(|names| !names.is_empty())),
                (
                    "data.label_separator",
                    self.label_separator.as_ref().map(|separator| format!("`{separator}`")),
                ),
            ] {
                if let Some(value) = value {
                    return Err(Error::option(key, value, message!("left out without ", ["data.labels"])));
                }
            }
            return Ok(());
        }
        if self.label_columns.len() == 1 {
            let accepted = "the column of the pictures and that of their classes, as in image,label";
            return Err(Error::option("data.label_columns", &self.label_columns[0], accepted));
        }
        if self.label_separator.as_ref().is_some_and(String::is_empty) {
            return Err(Error::option("data.label_separator", "empty", "a text, such as a space"));
        }
        match self.table_folder() {
            Some(name) if formats::names().any(|known| known == name) => {
                let accepted = message!("left out with ", ["data.labels"], ", or the folder of its pictures");
                Err(Error::option("data.dataset", name, accepted))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a folder or a file that no longer exists. `named_by` is its source, such as `the run's
    /// config.json`.
    ///
    /// # Errors
    /// [`Error::Moved`].
    pub fn check_folder(&self, named_by: &'static str) -> Result<()> {
        let moved = |option, path: &str| Err(Error::Moved { folder: PathBuf::from(path), option, named_by });
        match &self.labels {
            Some(file) if !file.is_file() => moved("data.labels", &file.to_string_lossy()),
            Some(_) => match self.table_folder() {
                Some(folder) if !Path::new(folder).is_dir() => moved("data.dataset", folder),
                _ => Ok(()),
            },
            None if formats::find(&self.dataset).is_none() => moved("data.dataset", &self.dataset),
            None => Ok(()),
        }
    }
}
