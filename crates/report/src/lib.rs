//! One page about one or several runs, to be opened in a browser.
//!
//! The page is a single file of HTML with its style, its curves as SVG and its pictures within; it loads nothing and runs no
//! script. It follows the reader's choice of light or dark, and fits a phone. [`html`] has the parts of such pages.
//!
//! ```
//! use towers_report::{RunReport, report};
//!
//! # let folder = tempfile::tempdir()?;
//! # let run = folder.path();
//! towers_config::save_config(&towers_config::recipe("keras-cnn")?, run)?;
//! let mut about = RunReport::read(run, "a first try")?;
//! about.without_test("The run is not over.");
//! assert!(report(&[about]).starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod augmented;
mod calibration;
mod comparison;
mod figures;
pub mod html;
mod page;
mod pictures;
mod ranking;
mod report;
mod results;
mod run_report;
mod settings;
#[cfg(test)]
mod tests;

pub use comparison::{chart, comparison};
pub use page::run_settings;
pub use report::{page_file, report, save_report};
pub use run_report::RunReport;
pub use towers_config::{Error, Result};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
