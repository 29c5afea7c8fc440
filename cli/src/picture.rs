//! Files for pictures of curves.

use crate::error::usage;
use std::path::Path;
use towers_plot::Format;
use towers_runs::folder_must_exist;

/// The format of a picture that will be written to the file of this option.
///
/// # Errors
/// If it ends in neither .png nor .svg, or its folder does not exist.
pub fn format_of(option: &'static str, file: &Path) -> anyhow::Result<Format> {
    let Some(format) = Format::of(file) else {
        return Err(usage(format!("--{option} is {}, but must end in .png or .svg", file.display())));
    };
    folder_must_exist(option, file)?;
    Ok(format)
}
