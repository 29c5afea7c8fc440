//! `towers report`: one page about one or several runs, to be opened in a browser.
//!
//! The page is a single file of HTML with its style, its curves as SVG and its pictures within; it loads nothing and runs no
//! script. It follows the reader's choice of light or dark, and fits a phone.

mod chart;
mod escape;
mod figures;
mod page;
mod pictures;
mod results;
mod settings;

use crate::observers::read_history;
use crate::{EpochRecord, Error, Result, atomic};
use cifar::Dataset;
use image::RgbImage;
use std::path::{Path, PathBuf};
use trained::{Classifier, Evaluation, evaluate, measured_on, split_name};

/// More mistakes than these tell little more.
const MISTAKES: usize = 24;

/// What a report shows of one run.
pub struct RunReport {
    name: String,
    history: Vec<EpochRecord>,
    /// `config.json`, key by key.
    config: Vec<(String, String)>,
    /// `environment.json`, likewise.
    environment: Vec<(String, String)>,
    test: std::result::Result<Tested, String>,
}

/// How a run's network did on test images.
struct Tested {
    /// The images, see [`measured_on`].
    images: String,
    /// Whether they are `test` images or those for `validation`.
    split: &'static str,
    classes: Vec<String>,
    evaluation: Evaluation,
    /// The pictures of its surest mistakes.
    mistakes: Vec<RgbImage>,
    /// What its first layer looks for.
    filters: Vec<RgbImage>,
}

impl RunReport {
    /// Reads what the run directory `run` says of itself. The page shows it under `name`.
    ///
    /// # Errors
    /// [`Error::Run`] if it is no run directory, [`Error::Io`] if one of its files can't be read.
    pub fn read(run: &Path, name: impl Into<String>) -> Result<Self> {
        let config = settings::read(&run.join("config.json"))?;
        let Some(config) = config else {
            let reason = "there is no run here; name a run's folder, as in runs/a".to_owned();
            return Err(Error::Run { path: run.to_owned(), reason });
        };
        let environment = settings::read(&run.join("environment.json"))?.unwrap_or_default();
        let test = Err("The network was not tested.".to_owned());
        Ok(RunReport { name: name.into(), history: read_history(run)?, config, environment, test })
    }

    /// Tests the run's network on the test pictures of `data`, the first of `all` that the data set has, as in [`measured_on`].
    ///
    /// # Errors
    /// As [`evaluate`].
    pub fn test(&mut self, classifier: &mut Classifier, data: &Dataset, all: Option<usize>) -> Result<()> {
        let evaluation = evaluate(classifier, data, |_, _| {})?;
        let shown = &evaluation.mistakes[..evaluation.mistakes.len().min(MISTAKES)];
        let mistakes =
            shown.iter().filter_map(|mistake| pictures::sample(&data.test, mistake.sample)).collect();
        let filters = pictures::filters(classifier)?;
        let (images, split, classes) = (measured_on(data, all), split_name(data), classifier.classes.clone());
        self.test = Ok(Tested { images, split, classes, evaluation, mistakes, filters });
        Ok(())
    }

    /// Has the page say why there are no results on test images.
    pub fn without_test(&mut self, why: impl Into<String>) {
        self.test = Err(why.into());
    }

    fn setting(&self, key: &str) -> &str {
        self.config.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

/// The page about some runs, as HTML.
///
/// ```
/// use train::report::{RunReport, report};
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// train::save_config(&train::recipe("keras-cnn")?, run)?;
/// let mut about = RunReport::read(run, "a first try")?;
/// about.without_test("The run is not over.");
/// assert!(report(&[about]).starts_with("<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn report(runs: &[RunReport]) -> String {
    page::page(runs)
}

/// The file of a page that is to be written to `output`: that itself, or `report.html` in it if it is a folder.
///
/// ```
/// use train::report::page_file;
///
/// assert_eq!(page_file("both.html".as_ref())?, std::path::Path::new("both.html"));
/// assert!(page_file("runs/a/model.safetensors".as_ref()).is_err());
/// # Ok::<(), train::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] for a file that doesn't end in .html or .htm, so that no other file is replaced by a page. A pipe or a device
/// may have any name.
pub fn page_file(output: &Path) -> Result<PathBuf> {
    if output.is_dir() {
        return Ok(output.join("report.html"));
    }
    let ending = output.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let is_page = ending.is_some_and(|ending| ending == "html" || ending == "htm");
    if is_page || (output.exists() && !output.is_file()) {
        return Ok(output.to_owned());
    }
    let accepted = "a folder, or a file that ends in .html or .htm".to_owned();
    Err(Error::Option { option: "--output", value: output.display().to_string(), accepted })
}

/// Writes the page about these runs to the [file](page_file) of `output`: whole or not at all. Its folder is made where it is missing.
///
/// # Errors
/// As [`page_file`]; [`Error::Io`] if it can't be written.
pub fn save_report(output: &Path, runs: &[RunReport]) -> Result<()> {
    atomic::replace(&page_file(output)?, report(runs).as_bytes())
}

#[cfg(test)]
mod tests;
