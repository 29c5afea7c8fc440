//! Running Cargo, with its own messages left visible.

pub use crate::cargo_again::again;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use std::process::Command;

/// A call of Cargo in the root of the workspace.
pub fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = again();
    command.args(arguments).current_dir(&workspace.root);
    command
}

/// Runs a prepared `command` to its end; an error if it can't start or doesn't succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("`{shown}` does not start"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// A command as one would type it.
pub fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut words = vec![program.file_stem().unwrap_or(program.as_os_str()).to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}
