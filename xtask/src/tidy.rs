//! `cargo xtask tidy`: the rules of the house that the compiler doesn't know.
//!
//! Each rule is a pure function from the workspace's metadata or its files to a list of violations.

mod alone;
mod arrows;
mod cycles;
mod files;
mod pages;
mod published;
mod test_files;
mod traces;
mod uses;
mod violation;

use crate::failure::Failure;
use crate::tally::Tally;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub use alone::alone;
pub use files::Files;

/// The command: all rules on the text, then each crate built alone. With `--cycles` it only prints cycles
/// of modules.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    match arguments {
        [] => {
            rules(workspace)?;
            alone(workspace, &mut Tally::default())?;
        }
        [flag] if flag == "--cycles" => {
            print!("{}", cycles::report(workspace, &Files::load(&workspace.root)?));
        }
        _ => return Err(Failure::Usage("`tidy` takes no argument but `--cycles`".to_owned())),
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the metadata and the files; prints every violation and fails if there is one.
pub fn rules(workspace: &Workspace) -> Result<()> {
    let files = Files::load(&workspace.root)?;
    let mut violations = arrows::check(workspace);
    violations.extend(cycles::check(workspace, &files));
    violations.extend(pages::check(&files));
    violations.extend(published::check(workspace, &files));
    violations.extend(test_files::check(workspace, &files));
    violations.extend(traces::check(&files));
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("rules are broken; the lines above say where ({})", violations.len());
    }
    println!("all files and {} crates are tidy", workspace.crates.len());
    Ok(())
}
