//! All output of the program. A closed pipe is no error, as in `towers devices | head -1`. Control characters
//! are escaped by [`printable`], so that names of files and classes can't control a terminal.

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use towers_callbacks::{LogFormat, LogLine, printable, shortened};

/// The form of messages and of a run's lines.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Sets the form of all messages from now on, once.
pub fn log_as(format: LogFormat) {
    FORMAT.get_or_init(|| format);
}

/// The form of messages: text, unless another one is set.
pub fn log_format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}

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

/// Prints a message on stderr, with long values shortened.
pub fn note(text: impl Display) {
    say(&LogLine::info("note", brief(text)));
}

/// Prints a warning on stderr, as [`note`].
pub fn warn(text: impl Display) {
    say(&LogLine::warning(brief(text)));
}

/// A message with long values shortened.
pub fn brief(text: impl Display) -> String {
    shortened(&text.to_string())
}

/// Prints a line on stderr. It ignores a closed pipe or a full disk, which should not end a run; `eprintln!`
/// would panic.
pub fn say(line: &LogLine) {
    // One write: other processes of a job may write to the same stream.
    let _ = io::stderr().lock().write_all(line.form(log_format()).as_bytes());
}

/// Prints a line on stdout.
pub fn result(line: &LogLine) -> anyhow::Result<ExitCode> {
    text(&line.form(log_format()))
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
