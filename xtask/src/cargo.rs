//! Running Cargo, with its own messages left visible.

use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use std::process::Command;

/// A call of the Cargo that started us (or the one on the path), in the root of the workspace.
pub fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(&workspace.root);
    command
}

/// Cargo's program: Cargo tells its subprocesses where it lives, so that toolchains don't mix.
pub fn program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
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
