use crate::{Config, Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The most images that a picture of a batch shows.
const MOST_IMAGES: usize = 1024;

/// A CSV file of the epochs' figures: Keras' `CSVLogger`. [`observers::CsvLogger`](crate::observers::CsvLogger) writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CsvLogOptions {
    /// The file: Keras' `filename`.
    pub path: PathBuf,
    /// What stands between the figures of a line: a character that is in no number.
    pub separator: char,
    /// Whether lines are added to a file that is there.
    pub append: bool,
}

impl Default for CsvLogOptions {
    /// As in Keras; the path is missing, which a run refuses.
    fn default() -> Self {
        CsvLogOptions { path: PathBuf::new(), separator: ',', append: false }
    }
}

impl CsvLogOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let CsvLogOptions { path, separator, .. } = self;
        check_path("--csv-log", path, "a file")?;
        if separator.is_alphanumeric() || "+-.\r\n\"".contains(*separator) {
            return Err(Error::Option {
                option: "--csv-separator",
                value: format!("`{}`", separator.escape_debug()),
                accepted: "one character that is in no number, such as `;`, or \\t".to_owned(),
            });
        }
        Ok(())
    }
}

/// TensorBoard's event files, with what is in them beside the epochs' figures.
/// [`observers::TensorBoard`](crate::observers::TensorBoard) writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TensorBoardOptions {
    /// The folder: Keras' `log_dir`.
    pub path: PathBuf,
    /// Epochs from one histogram of the weights to the next; 0 for none.
    pub histogram_freq: u64,
    /// So many augmented images of every epoch's first batch; 0 for none.
    pub images: usize,
}

impl TensorBoardOptions {
    pub(crate) fn check(&self) -> Result<()> {
        check_path("--tensorboard", &self.path, "a folder")?;
        if self.images > MOST_IMAGES {
            return Err(Error::Option {
                option: "--tensorboard-images",
                value: self.images.to_string(),
                accepted: format!("at most {MOST_IMAGES}"),
            });
        }
        Ok(())
    }
}

fn check_path(option: &'static str, path: &Path, what: &str) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::Option { option, value: "``".to_owned(), accepted: what.to_owned() });
    }
    Ok(())
}

impl Config {
    /// Has no file written outside of the run's folder: no CSV file, nothing for TensorBoard, no plot.
    pub fn forget_outputs(&mut self) {
        (self.csv_log, self.tensorboard, self.plot) = (None, None, None);
    }

    /// Makes the paths of what is written outside of the run's folder absolute, so that a resume elsewhere finds the same files.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no current folder.
    pub fn settle_outputs(&mut self) -> Result<()> {
        let csv = self.csv_log.as_mut().map(|log| &mut log.path);
        let board = self.tensorboard.as_mut().map(|board| &mut board.path);
        // An empty path is refused by `check`.
        for path in
            [csv, board, self.plot.as_mut()].into_iter().flatten().filter(|path| **path != Path::new(""))
        {
            *path = std::path::absolute(&*path).map_err(Error::io("find", &*path))?;
        }
        Ok(())
    }
}
