use crate::{Error, Result, RunReport, page};
use std::path::{Path, PathBuf};

/// The page about some runs, as HTML.
///
/// ```
/// use towers_report::{RunReport, report};
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// towers_config::save_config(&towers_config::recipe("keras-cnn")?, run)?;
/// let mut about = RunReport::read(run, "a first try")?;
/// about.without_test("The run is not over.");
/// assert!(report(&[about]).starts_with("<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn report(runs: &[RunReport]) -> String {
    page::page(runs)
}

/// The file of a page for `output`: `output` itself, or `report.html` in it if it is a folder.
///
/// ```
/// use towers_report::page_file;
///
/// assert_eq!(page_file("both.html".as_ref())?, std::path::Path::new("both.html"));
/// assert!(page_file("runs/a/model.safetensors".as_ref()).is_err());
/// # Ok::<(), towers_config::Error>(())
/// ```
///
/// # Errors
/// [`towers_config::Error::Option`] for a file that doesn't end in .html or .htm, so that no other file is replaced by a page. A pipe or a device
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
    Err(Error::option("output", output.display(), "a folder, or a file that ends in .html or .htm"))
}

/// Writes the page about these runs to the [file](page_file) of `output`: whole or not at all. Its folder is made where it is missing.
///
/// # Errors
/// As [`page_file`]; [`towers_config::Error::File`] if it can't be written.
pub fn save_report(output: &Path, runs: &[RunReport]) -> Result<()> {
    let page = page_file(output)?;
    Ok(towers_files::write_output(&page, report(runs).as_bytes())?)
}
