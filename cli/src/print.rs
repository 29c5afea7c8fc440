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

/// A text of at most so many characters. A longer one is cut, and `end` takes the place of the rest.
pub fn cut(text: &str, most: usize, end: &str) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(end.chars().count());
    text.chars().take(kept).chain(end.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_message_ends_with_where_the_rest_is() {
        let end = " ... (the rest is in report.md)";
        assert_eq!(cut("y[0] is 1, not 2", 500, end), "y[0] is 1, not 2");
        assert_eq!(cut(&"é".repeat(500), 500, end), "é".repeat(500));
        let long = cut(&"é".repeat(100_000), 500, end);
        assert!(long.chars().count() == 500 && long.starts_with("éé") && long.ends_with(end), "{long}");
    }
}
