//! Output that survives a closed pipe, as in `towers devices | head -1`.

use std::io::{self, Write};
use std::process::ExitCode;

/// Prints text to stdout; a reader that has gone is no error.
pub fn text(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints lines to stdout.
pub fn lines(lines: Vec<String>) -> anyhow::Result<ExitCode> {
    text(&(lines.join("\n") + "\n"))
}
