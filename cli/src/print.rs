//! Everything that the program prints. It survives a closed pipe, as in `towers devices | head -1`, and what it says of files or
//! classes can't act on a terminal: see [`printable`].

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use train::{printable, shortened};

/// Prints text to stdout; a reader that has gone is no error.
pub fn text(text: &str) -> anyhow::Result<ExitCode> {
    is_read(text).map(|_| ExitCode::SUCCESS)
}

/// Prints text to stdout, and tells whether somebody may read it: a reader that has gone is no error.
pub fn is_read(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("can't write to standard output"),
    }
}

/// Tells people something on stderr, without the most of any very long value. That nobody reads it, or that the disk of a log is full, is dropped on
/// purpose: it is no reason to lose a run, and `eprintln!` would panic.
pub fn note(text: impl Display) {
    // In one piece: other processes of a job may write to the same place.
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
