//! `cargo xtask tidy`: the rules of the house that the compiler doesn't know.
//!
//! Each rule is a pure function from the workspace's metadata or its files to a list of violations, printed
//! one a line as `path:line: what - how to mend it`.

mod alone;
mod arrows;
mod book;
mod files;
mod lengths;
mod links;
mod manifests;
mod test_files;
mod text;

use crate::Failure;
use crate::tally::Tally;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use files::Files;
use std::fmt;
use std::process::ExitCode;

pub use alone::alone;

/// A broken rule: where, what, and how to mend it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    what: String,
    mend: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>, mend: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} - {}", self.path, self.line, self.what, self.mend)
    }
}

/// The command: all rules on the text, then each crate built alone.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    if let Some(word) = arguments.first() {
        return Err(Failure::Usage(format!("`tidy` takes no argument, but got `{word}`")));
    }
    rules(workspace)?;
    alone(workspace, &mut Tally::default())?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the metadata and the files; prints every violation and fails if there is one.
pub fn rules(workspace: &Workspace) -> Result<()> {
    let files = Files::load(&workspace.root)?;
    let mut violations = arrows::check(workspace, &files);
    violations.extend(manifests::check(workspace, &files));
    violations.extend(test_files::check(workspace, &files));
    violations.extend(lengths::check(&files));
    violations.extend(text::check(&files));
    violations.extend(links::check(&files));
    violations.extend(book::check(&files, &crate::command_names(), &crate::test::step_names()));
    violations.sort();
    for note in lengths::notes(&files) {
        println!("note: {note}");
    }
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("{} files and {} crates are tidy", files.len(), workspace.crates.len());
            Ok(())
        }
        1 => bail!("1 rule is broken; the line above says where and how to mend it"),
        n => bail!("{n} rules are broken; the lines above say where and how to mend them"),
    }
}
