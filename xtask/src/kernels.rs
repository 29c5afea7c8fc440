//! `cargo xtask kernels`: compiles every CUDA kernel without a GPU, by the program in `xtask/kernels`.
//!
//! It is a program of its own because it depends on the CUDA backend and on a download, and this one is to stay small.

use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{Failure, cargo, test};
use anyhow::Result;
use std::process::{Command, ExitCode};

/// Runs it with all it has to show.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cargo::run(&mut command(workspace, &arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// The step of `cargo xtask test`: only the sums, and what is wrong. Where the compiler can't be had it is skipped.
pub fn step(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    test::counted(&mut command(workspace, &["--summary"]), tally)
}

fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = cargo::command(workspace, &["run", "--quiet", "--package", "towers-kernels", "--"]);
    command.args(arguments);
    command
}
