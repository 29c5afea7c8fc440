//! Data with a progress bar.

use crate::print::note;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};
use towers_config::{DataFiles, DataSet, ImageSize, Progress};
use towers_dataset::Dataset;
use towers_train::cifar;

/// The seconds between two lines about a download, without a terminal.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Reads the value of `--image-size`.
pub fn image_size(text: &str) -> Result<ImageSize, String> {
    text.parse().map_err(|error| match error {
        towers_trained::Error::Option(towers_options::Error::Value { accepted, .. }) => {
            format!("must be {accepted}")
        }
        other => other.to_string(),
    })
}

/// Loads the data, and shows downloads.
pub fn load(set: &DataSet, files: &DataFiles, no_progress: bool) -> towers_config::Result<Dataset> {
    let mut progress_view = LoadProgress::new(no_progress);
    let data = towers_config::load_data(set, files, |progress| progress_view.report(&progress));
    progress_view.finish();
    data.map_err(|error| progress_view.without_repeats(error))
}

/// Loads test images only, as [`towers_config::load_test_data`].
pub fn load_test(
    set: &DataSet,
    files: &DataFiles,
    whole: bool,
) -> towers_config::Result<(Dataset, Option<usize>)> {
    let mut progress_view = LoadProgress::new(true);
    towers_config::load_test_data(set, files, whole, |progress| progress_view.report(&progress))
}

/// The progress of a download, or of decoding a folder, on stderr: a bar on a terminal, lines otherwise.
pub struct LoadProgress {
    bar: Option<ProgressBar>,
    terminal: bool,
    last: Option<Instant>,
    /// Why sources failed, as it was printed.
    failed: Vec<String>,
}

impl LoadProgress {
    pub fn new(no_progress: bool) -> Self {
        LoadProgress {
            bar: None,
            terminal: !no_progress && stderr().is_terminal(),
            last: None,
            failed: Vec::new(),
        }
    }

    /// An error without the failures of sources that were printed when they happened.
    fn without_repeats(&self, mut error: towers_config::Error) -> towers_config::Error {
        if let towers_config::Error::Fetch(cifar::Error::NoSource { failures, .. }) = &mut error {
            failures.retain(|failure| !self.failed.contains(failure));
        }
        error
    }

    pub fn report(&mut self, progress: &Progress<'_>) {
        use cifar::Progress as Fetch;
        use towers_pictures::Progress as Pictures;
        if let Progress::Fetch(Fetch::Failed { reason }) = progress {
            self.failed.push(reason.to_string());
        }
        match progress {
            Progress::Fetch(Fetch::Downloading { bytes, total, .. }) if self.terminal => {
                let bar = self.bar.get_or_insert_with(|| bar(BYTES));
                bar.set_length(total.unwrap_or(0));
                bar.set_position(*bytes);
            }
            Progress::Pictures(Pictures::Decoding { done, total }) if self.terminal => {
                let bar = self.bar.get_or_insert_with(|| bar(PICTURES));
                bar.set_length(*total as u64);
                bar.set_position(*done as u64);
            }
            // Most folders are decoded before this.
            Progress::Pictures(Pictures::Decoding { .. })
                if self.last.get_or_insert_with(Instant::now).elapsed() < REPORT_EVERY => {}
            Progress::Fetch(Fetch::Downloading { .. })
                if self.last.is_some_and(|last| last.elapsed() < REPORT_EVERY) => {}
            // Data that were there already need no line.
            Progress::Fetch(Fetch::Ready { .. }) if self.last.is_none() && self.bar.is_none() => {}
            other => {
                self.finish();
                self.last = Some(Instant::now());
                let remedy = match other {
                    Progress::Pictures(Pictures::Lists { separator, .. }) => {
                        format!(": --label-separator '{separator}'")
                    }
                    _ => String::new(),
                };
                note(format_args!("{other}{remedy}"));
            }
        }
    }

    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

const BYTES: &str = "{bar:30} {bytes}/{total_bytes} - {bytes_per_sec} - ETA: {eta}";
const PICTURES: &str = "{bar:30} {pos}/{len} pictures decoded - ETA: {eta}";

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}
