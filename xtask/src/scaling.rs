//! `cargo xtask scaling`: predicts training on many GPUs, by the program in `xtask/scaling`.
//!
//! It is a separate program because it needs more dependencies, and `xtask` must stay small.

use crate::cargo;
use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::Context as _;
use std::process::ExitCode;

/// Runs it in the caller's own folder, so that relative paths in the flags are right; its exit status is
/// ours.
pub fn run(workspace: &Workspace, flags: &[String]) -> Result<ExitCode, Failure> {
    let mut command = cargo::again();
    command.args(["run", "--quiet", "--package", "towers-scaling", "--manifest-path"]);
    command.arg(workspace.root.join("Cargo.toml")).arg("--").args(flags);
    let status = command.status().with_context(|| format!("`{}` does not start", cargo::show(&command)))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
