//! All output of the program. A closed pipe is no error, as in `towers devices | head -1`. Control characters
//! are escaped by [`printable`], so that names of files and classes can't control a terminal.

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use towers_callbacks::{printable, shortened};

/// Prints text to stdout.
pub fn text(text: &str) -> anyhow::Result<ExitCode> {
    is_read(text).map(|_| ExitCode::SUCCESS)
}

/// Prints text to stdout. Returns false if the pipe is closed.
pub fn is_read(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("can't write to standard output"),
    }
}

/// Prints a message on stderr, with long values shortened. It ignores a closed pipe or a full disk, which
/// should not end a run; `eprintln!` would panic.
pub fn note(text: impl Display) {
    // One write: other processes of a job may write to the same stream.
    let _ =
        io::stderr().lock().write_all(printable(&format!("{}\n", shortened(&text.to_string()))).as_bytes());
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<ExitCode> {
    text(&(serde_json::to_string(value)? + "\n"))
}

/// Prints lines to stdout.
pub fn lines(lines: Vec<String>) -> anyhow::Result<ExitCode> {
    text(&(lines.join("\n") + "\n"))
}

/// "1 thread", "2 threads".
pub fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Rows of cells, each column as wide as its widest cell. The first columns are `words`; the others are numbers.
pub fn aligned<const N: usize>(rows: &[[String; N]], words: usize) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, width))| match column < words {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn words_begin_and_numbers_end_at_one_place() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let rows = [row(["a", "Conv2D", "", "", "1"]), row(["longest", "Flatten", "", "", "10"])];
        assert_eq!(aligned(&rows, 4), "a        Conv2D        1\nlongest  Flatten      10\n");
    }
}
