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
use crate::{Classifier, EpochRecord, Error, Evaluation, Result, atomic, evaluate};
use cifar::Dataset;
use image::RgbImage;
use std::path::Path;

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
    dataset: String,
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

    /// Tests the run's network on the test pictures of `data`.
    ///
    /// # Errors
    /// As [`evaluate`].
    pub fn test(&mut self, classifier: &mut Classifier, data: &Dataset) -> Result<()> {
        let evaluation = evaluate(classifier, data, |_, _| {})?;
        let shown = &evaluation.mistakes[..evaluation.mistakes.len().min(MISTAKES)];
        let mistakes =
            shown.iter().filter_map(|mistake| pictures::sample(&data.test, mistake.sample)).collect();
        let filters = pictures::filters(classifier)?;
        let (dataset, classes) = (data.name.clone(), classifier.classes.clone());
        self.test = Ok(Tested { dataset, classes, evaluation, mistakes, filters });
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

/// Writes the page about these runs to `file`: whole or not at all. Its folder is made where it is missing.
///
/// # Errors
/// [`Error::Io`] if it can't be written.
pub fn save_report(file: &Path, runs: &[RunReport]) -> Result<()> {
    atomic::replace(file, report(runs).as_bytes())
}

#[cfg(test)]
mod tests;
